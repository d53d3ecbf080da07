//! The API and the webhooks over HTTP: the only room that knows axum. Every answer that is no success is
//! `application/problem+json`.

mod assets;
mod auth;
mod endings;
mod endpoints;
mod headers;
mod health;
mod input;
mod limits;
mod metrics;
mod openapi;
mod ops;
mod orders;
mod paging;
mod problem;
mod serve;
mod state;
mod stock;
mod trace;
mod wait;
mod webhooks;

pub use metrics::watching;
pub use serve::serve;
pub use state::AppState;

use axum::http::Uri;
use axum::{Router, middleware};
use problem::{Code, Problem};
use tower_http::catch_panic::CatchPanicLayer;

/// Everything that answers.
pub fn app(state: AppState) -> Router {
    let routes = Router::new()
        .merge(assets::routes())
        .merge(endings::routes())
        .merge(endpoints::routes())
        .merge(health::routes())
        .merge(openapi::routes())
        .merge(metrics::routes())
        .merge(ops::routes())
        .merge(orders::routes())
        .merge(stock::routes())
        .merge(webhooks::routes())
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(state);
    around(routes)
}

/// What stands around every route, and around the paths that are none.
fn around(routes: Router) -> Router {
    // From the inside out: a panic becomes a problem before its answer is logged.
    routes
        .layer(middleware::from_fn(limits::answer_in_time))
        .layer(middleware::from_fn(limits::read_body))
        .layer(CatchPanicLayer::custom(trace::panicked))
        .layer(middleware::from_fn(trace::request))
}

async fn no_such_path(uri: Uri) -> Problem {
    Problem::new(Code::NotFound, format!("there is nothing at {}", uri.path()))
}

async fn no_such_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "see the header Allow for the methods that are")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use axum::routing::get;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_handler_that_panics_ends_its_request_and_nothing_else() {
        async fn broken() {
            panic!("with a secret in it");
        }
        let app = around(Router::new().route("/broken", get(broken)).route("/well", get(async || "well")));
        let ask =
            async |path: &str| app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let answer = ask("/broken").await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        assert!(answer.headers().contains_key("x-request-id"));
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.contains("/problems/internal_error") && !text.contains("secret"), "{text}");
        assert_eq!(ask("/well").await.status(), StatusCode::OK);
    }
}
