//! One span for each request, and one line in the log for its answer. Of the request it holds the method
//! and the route's pattern only: paths, queries, headers and bodies can hold what must not be logged.

use std::any::Any;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tracing::Instrument as _;
use uuid::Uuid;

use super::problem::{Code, Problem};

/// Every answer carries the id under which its request stands in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Names the request, and tells the log how it went.
pub(super) async fn request(request: Request, next: Next) -> Response {
    let id = Uuid::now_v7().to_string();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    let span = tracing::info_span!("request", %id, method = %request.method(), route);
    let began = Instant::now();
    async move {
        let mut response = next.run(request).await;
        let status = response.status().as_u16();
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(status, ms, "answered");
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        response
    }
    .instrument(span)
    .await
}

/// A handler that panics ends its request and nothing else.
pub(super) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = said.unwrap_or("without words"), "a handler panicked");
    Problem::new(Code::Internal, "this is our mistake, not yours; it was logged").into_response()
}
