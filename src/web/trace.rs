//! One span for each request, and one line in the log for its answer. Of the request it holds the method
//! and the route's pattern only: paths, queries, headers and bodies can hold what must not be logged.

use std::any::Any;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};
use uuid::Uuid;

use super::problem::{Code, Problem};
use crate::traces::{self, TRACEPARENT};

/// Every answer carries the id under which its request stands in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Names the request, and tells the log how it went.
pub(super) async fn request(request: Request, next: Next) -> Response {
    let id = Uuid::now_v7().to_string();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = known(request.method());
    let span = span(&id, &request, &route);
    let whole = span.clone();
    let began = Instant::now();
    async move {
        let mut response = next.run(request).await;
        let status = response.status().as_u16();
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(status, ms, "answered");
        whole.record("http.response.status_code", status);
        if status >= 500 {
            traces::failed(&whole);
        }
        metrics::histogram!("onehold_http_request_seconds", "route" => route.clone()).record(began.elapsed());
        metrics::counter!("onehold_http_requests_total",
            "route" => route, "method" => method, "status" => status.to_string())
        .increment(1);
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        response
    }
    .instrument(span)
    .await
}

/// Where traces are gathered, with what OpenTelemetry calls things, and as a part of the trace that the client names.
fn span(id: &str, request: &Request, route: &str) -> Span {
    let method = request.method();
    if !traces::on() {
        return tracing::info_span!("request", %id, %method, route);
    }
    let method = known(method);
    let span = tracing::info_span!(
        "request",
        %id,
        "otel.name" = format!("{method} {route}"),
        "otel.kind" = "server",
        "otel.status_code" = Empty,
        "http.request.method" = method,
        "http.route" = route,
        "http.response.status_code" = Empty,
    );
    traces::follow(&span, request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok()));
    span
}

/// A client can send any word for a method; what is counted has a bounded number of labels.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

/// A handler that panics ends its request and nothing else.
pub(super) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = said.unwrap_or("without words"), "a handler panicked");
    Problem::new(Code::Internal, "this is our mistake, not yours; it was logged").into_response()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::http::Request;
    use axum::routing::post;
    use tower::ServiceExt as _;

    use super::super::around;

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Case P4.
    #[tokio::test]
    async fn the_log_tells_of_a_request_nothing_that_a_client_sent() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        let _logging = tracing::subscriber::set_default(subscriber.with_writer(move || writer.clone()).finish());
        let app = around(Router::new().route("/orders/{id}", post(async |_: Bytes| "well")));
        for path in ["/orders/S3CRET?key=S3CRET", "/S3CRET"] {
            let request =
                Request::post(path).header("authorization", "Bearer S3CRET").header("stripe-signature", "S3CRET");
            app.clone().oneshot(request.body(Body::from("S3CRET")).unwrap()).await.unwrap();
        }
        let told = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(told.contains("/orders/{id}") && told.contains("status=404"), "{told}");
        assert!(!told.contains("S3CRET"), "{told}");
    }
}
