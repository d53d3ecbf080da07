//! The headers of placing: `Idempotency-Key` and `Prefer: wait=N`.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::problem::{Code, Problem};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MOST_KEY_CHARS: usize = 255;
const PREFER: &str = "prefer";
/// The longest wait, in seconds; who wishes for more waits this long.
const MOST_WAIT_SECONDS: u64 = 30;

/// The client's own name for this placement.
#[derive(Debug)]
pub(crate) struct IdempotencyKey(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        key(&parts.headers).map(Self)
    }
}

fn key(headers: &HeaderMap) -> Result<String, Problem> {
    let invalid = |detail: &str| Problem::new(Code::InvalidIdempotencyKey, format!("Idempotency-Key {detail}"));
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let value = values.next().ok_or_else(|| invalid("is missing"))?;
    if values.next().is_some() {
        return Err(invalid("stands there twice"));
    }
    let bytes = value.as_bytes();
    let printable = bytes.iter().all(|b| (b' '..=b'~').contains(b));
    let text = value.to_str().ok().filter(|_| printable && (1..=MOST_KEY_CHARS).contains(&bytes.len()));
    text.map(str::to_owned).ok_or_else(|| invalid("must have 1 to 255 printable ASCII characters"))
}

/// How long the answer may wait for the order's decision, if the client wishes it to (RFC 7240). What
/// cannot be read is no wish, as that RFC has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreferWait(pub(crate) Option<Duration>);

impl<S: Send + Sync> FromRequestParts<S> for PreferWait {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(wait(&parts.headers)))
    }
}

fn wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split(',')).filter_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then_some(value.trim().trim_matches('"'))
    });
    // The first counts.
    let value = preferences.next()?;
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds = value.parse().unwrap_or(MOST_WAIT_SECONDS);
    Some(Duration::from_secs(seconds.min(MOST_WAIT_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, axum::http::HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_key_is_1_to_255_printable_ascii_characters_and_stands_there_once() {
        let of = |values: &[&[u8]]| key(&headers(IDEMPOTENCY_KEY, values)).ok();
        assert_eq!(of(&[b"cart 77/~"]).as_deref(), Some("cart 77/~"));
        assert!(of(&[&[b'x'; 255]]).is_some());
        for bad in [&b""[..], &[b'x'; 256], b"a\tb", "ä".as_bytes(), b"\xff"] {
            assert_eq!(of(&[bad]), None, "{bad:?}");
        }
        assert_eq!((of(&[]), of(&[b"a", b"a"])), (None, None));
    }

    #[test]
    fn a_wait_is_capped_and_what_cannot_be_read_is_no_wish() {
        let of = |values: &[&[u8]]| wait(&headers(PREFER, values)).map(|wait| wait.as_secs());
        assert_eq!(of(&[b"wait=5"]), Some(5));
        assert_eq!(of(&[b"Wait = \"7\"; x=y"]), Some(7));
        assert_eq!(of(&[b"return=minimal, wait=0"]), Some(0));
        assert_eq!(of(&[b"respond-async", b"wait=8, wait=9"]), Some(8));
        assert_eq!(of(&[b"wait=31"]), Some(30));
        assert_eq!(of(&[b"wait=99999999999999999999999"]), Some(30));
        assert_eq!(of(&[]), None);
        for none in [&b"wait"[..], b"wait=", b"wait=-1", b"wait=1.5", b"waiting=3", b"\xff"] {
            assert_eq!(of(&[none]), None, "{none:?}");
        }
    }
}
