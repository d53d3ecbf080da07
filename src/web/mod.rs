//! The API and the webhooks over HTTP: the only room that knows axum. Every answer that is no success is
//! `application/problem+json`.

mod assets;
mod auth;
mod endings;
mod headers;
mod health;
mod input;
mod limits;
mod orders;
mod paging;
mod problem;
mod serve;
mod state;
mod trace;
mod wait;
mod webhooks;

pub use serve::serve;
pub use state::AppState;

use axum::http::Uri;
use axum::{Router, middleware};
use problem::{Code, Problem};
use tower_http::catch_panic::CatchPanicLayer;

/// Everything that answers.
pub fn app(state: AppState) -> Router {
    Router::new()
        .merge(assets::routes())
        .merge(endings::routes())
        .merge(health::routes())
        .merge(orders::routes())
        .merge(webhooks::routes())
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(state)
        // From the inside out: a panic becomes a problem before it is counted and told.
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
