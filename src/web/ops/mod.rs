//! The dashboard: pages rendered here, for those who signed in with a key of scope ops. Whatever comes from
//! outside is text (maud escapes it), and nothing is loaded from elsewhere.

mod actions;
mod inventory;
mod live;
mod orders;
mod overview;
mod page;
mod session;
mod work;

pub(crate) use session::Watcher;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::AppState;

/// Scripts, styles and requests of our own only; no frames, no forms to elsewhere, nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/ops/sign-in", post(session::sign_in).get(sign_in_page))
        .route("/ops/sign-out", post(session::sign_out))
        .route("/ops/style.css", get(|| file("text/css; charset=utf-8", include_str!("style.css"))))
        .route("/ops/live.js", get(|| file("text/javascript; charset=utf-8", include_str!("live.js"))))
        .route("/ops/icon.svg", get(|| file("image/svg+xml", include_str!("icon.svg"))))
        .route("/ops", get(overview::overview))
        .route("/ops/live", get(live::overview_live))
        .route("/ops/orders", get(orders::list))
        .route("/ops/orders/{id}", get(orders::order))
        .route("/ops/orders/{id}/{wish}", post(actions::order))
        .route("/ops/inventory", get(inventory::inventory))
        .route("/ops/queues", get(work::queues))
        .route("/ops/queues/{name}", get(work::queue))
        .route("/ops/queues/{name}/{wish}", post(actions::queue))
        .route("/ops/jobs/{id}", get(work::job))
        .route("/ops/jobs/{id}/{wish}", post(actions::job))
        .route("/ops/connections", get(inventory::connections))
        .layer(middleware::from_fn(strictly))
}

async fn sign_in_page() -> Response {
    page::sign_in(None).into_response()
}

async fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// What every answer of the dashboard carries.
async fn strictly(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
