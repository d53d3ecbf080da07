//! Bounds on bodies: their size, and how long they may take to come. Read before anything else, so that
//! the bound holds on every path, whether the length was announced or not.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::problem::{Code, Problem};

/// The most bytes of a body.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a body that is too large is read and thrown away, so that a client which sends it all
/// before it listens gets the answer, and not a connection that was reset.
const MOST_DISCARDED: usize = 32 << 20;

/// Reads the body into memory, within the limits, and passes the request on with it.
pub(super) async fn read_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(length);
    // Such a client waits for leave to send, and is spared the sending.
    let waits = parts.headers.contains_key(header::EXPECT);
    if waits && announced.is_some_and(|bytes| bytes > MOST_BYTES as u64) {
        return too_large();
    }
    match tokio::time::timeout(PATIENCE, read(body)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(Unread::TooLarge)) => too_large(),
        Ok(Err(Unread::Broken)) => closing(Problem::new(Code::BrokenBody, "the body broke off")),
        Err(_) => closing(Problem::new(Code::RequestTimeout, "the body did not come within 10 seconds")),
    }
}

/// How long an answer may take: longer than the longest `Prefer: wait` and a statement's own limit together. A
/// database that is neither up nor down, but frozen, ends no statement by itself.
const MOST_ANSWER: Duration = Duration::from_secs(45);

/// Answers in time, whatever the database does.
pub(super) async fn answer_in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(MOST_ANSWER, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(Code::Unavailable, "the database did not answer in time; try again").into_response(),
    }
}

enum Unread {
    TooLarge,
    Broken,
}

async fn read(mut body: Body) -> Result<Bytes, Unread> {
    match Limited::new(&mut body, MOST_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(Unread::TooLarge)
        }
        Err(_) => Err(Unread::Broken),
    }
}

async fn discard(mut body: Body) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > MOST_DISCARDED {
            return;
        }
    }
}

fn length(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

fn too_large() -> Response {
    closing(Problem::new(Code::BodyTooLarge, format!("a body may have {MOST_BYTES} bytes")))
}

/// What is left of the body would be taken for the next request.
fn closing(problem: Problem) -> Response {
    problem.header(header::CONNECTION, HeaderValue::from_static("close")).into_response()
}
