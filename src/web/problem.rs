//! What went wrong, as `application/problem+json` (RFC 9457). The codes are frozen: clients act on them.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::body::BodyFault;
use crate::db::Fault;

/// Seconds after which to try again when the database could not be asked.
const RETRY_AFTER_SECONDS: u16 = 1;

macro_rules! codes {
    ($($(#[$doc:meta])+ $variant:ident = $code:literal, $status:ident, $title:literal;)+) => {
        /// Of what kind a problem is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($(#[$doc])+ $variant),+
        }

        impl Code {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$variant),+];

            /// The frozen code, with which the problem's `type` ends.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// The HTTP status that goes with it, always.
            pub(crate) fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }
        }
    };
}

codes! {
    /// The body is not JSON that can be read.
    InvalidJson = "invalid_json", BAD_REQUEST, "The body is not JSON";
    /// A query parameter is unknown or does not fit.
    InvalidQuery = "invalid_query", BAD_REQUEST, "A query parameter does not fit";
    /// The header `Idempotency-Key` is missing or does not fit.
    InvalidIdempotencyKey = "invalid_idempotency_key", BAD_REQUEST, "The idempotency key is missing or does not fit";
    /// A webhook whose sender is not believed.
    InvalidSignature = "invalid_signature", BAD_REQUEST, "The signature does not fit";
    /// A webhook that is believed, but is no event.
    InvalidEvent = "invalid_event", BAD_REQUEST, "The body is no event";
    /// A body that broke off.
    BrokenBody = "broken_body", BAD_REQUEST, "The body could not be read to its end";
    /// No key, or one that is not live.
    Unauthorized = "unauthorized", UNAUTHORIZED, "A valid API key is needed";
    /// The key is not for this.
    Forbidden = "forbidden", FORBIDDEN, "The API key lacks the scope";
    /// There is no such thing, or it is another shop's.
    NotFound = "not_found", NOT_FOUND, "There is no such thing";
    /// The path is there, but not for this method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "The method is not allowed here";
    /// The body did not come in time.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "The request did not come in time";
    /// The order is sold: it can be released, not cancelled.
    AlreadyConverted = "already_converted", CONFLICT, "The order is converted";
    /// Nothing is held, or the hold has lapsed.
    NotHeld = "not_held", CONFLICT, "The order holds nothing";
    /// Only a converted order can be released.
    NotConverted = "not_converted", CONFLICT, "The order is not converted";
    /// An order holds the asset or has bought it.
    AssetInUse = "asset_in_use", CONFLICT, "The asset is in use";
    /// More would be held than there is.
    WouldOversell = "would_oversell", CONFLICT, "The movement would take what is held";
    /// Nothing more is sent to the endpoint.
    EndpointDisabled = "endpoint_disabled", CONFLICT, "The endpoint is disabled";
    /// The body is larger than is taken.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "The body is too large";
    /// The body is said to be something other than JSON.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The body must be JSON";
    /// JSON, but not what it should be: see `errors`.
    InvalidBody = "invalid_body", UNPROCESSABLE_ENTITY, "The body does not fit";
    /// The key belongs to an order with another body.
    IdempotencyKeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY, "The idempotency key was used with another body";
    /// The reference belongs to another movement.
    ReferenceReused = "reference_reused", UNPROCESSABLE_ENTITY, "The reference was used for another movement";
    /// Our own mistake.
    Internal = "internal_error", INTERNAL_SERVER_ERROR, "Something went wrong here";
    /// The database could not be asked: try again.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "The service cannot answer now";
}

/// An answer that says what went wrong. Handlers give it as their error.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    code: Code,
    detail: String,
    errors: Vec<BodyFault>,
    extra: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// `detail` says to a person what went wrong this time. It must hold no secret and nothing of our insides.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new(), extra: Map::new(), headers: Vec::new() }
    }

    /// A body that does not fit, with every fault named.
    pub(crate) fn invalid_body(errors: Vec<BodyFault>) -> Self {
        let detail = match errors.as_slice() {
            [BodyFault { pointer, detail }] if pointer.is_empty() => format!("the body {detail}"),
            [BodyFault { pointer, detail }] => format!("{pointer} {detail}"),
            many => format!("{} faults, see errors", many.len()),
        };
        Self { errors, ..Self::new(Code::InvalidBody, detail) }
    }

    /// No such thing, or another shop's.
    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "there is no such thing in this shop")
    }

    /// What is wrong where in the body.
    pub(crate) fn errors(mut self, errors: Vec<BodyFault>) -> Self {
        self.errors = errors;
        self
    }

    /// One more member of the answer, such as the order that stands in the way.
    pub(crate) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(member.to_owned(), value.into());
        self
    }

    /// One more header of the answer.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> Code {
        self.code
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = self.extra;
        // Relative to the request's own address, so that the type does not depend on where Onehold is installed.
        body.insert("type".into(), format!("/problems/{}", self.code.code()).into());
        body.insert("title".into(), self.code.title().into());
        body.insert("status".into(), self.code.status().as_u16().into());
        body.insert("detail".into(), self.detail.into());
        if !self.errors.is_empty() {
            body.insert("errors".into(), json!(self.errors));
        }
        let mut response = (self.code.status(), Json(Value::Object(body))).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.extend(self.headers);
        response
    }
}

impl From<Fault> for Problem {
    /// What broke is for the log; the client learns whether trying again can help.
    fn from(fault: Fault) -> Self {
        if fault.is_unreachable() || is_busy(&fault) {
            tracing::warn!(%fault, "the database could not be asked");
            return Self::new(Code::Unavailable, "the database cannot be asked now; try again")
                .header(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        tracing::error!(%fault, "a request failed");
        Self::new(Code::Internal, "this is our mistake, not yours; it was logged")
    }
}

/// The database is there, but not for this now: a lock or a statement that took too long, a conflict that
/// outlived its retries, no memory or room left, or a standby that has not been promoted yet.
fn is_busy(fault: &Fault) -> bool {
    let Some(state) = fault.sqlstate() else { return false };
    fault.is_retryable() || state.starts_with("53") || ["55P03", "57014", "25006"].contains(&state.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_code_is_its_own_and_an_error() {
        let codes: BTreeSet<_> = Code::ALL.iter().map(|code| code.code()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
            assert!(code.code().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code:?}");
        }
    }

    #[test]
    fn a_database_that_cannot_be_reached_is_a_503_and_anything_else_a_500() {
        let down = Fault::from(sqlx::Error::PoolTimedOut);
        assert_eq!(Problem::from(down).code(), Code::Unavailable);
        let broken = Fault::from(sqlx::Error::RowNotFound);
        assert_eq!(Problem::from(broken).code(), Code::Internal);
    }
}
