//! What handlers read from a request: the JSON body, the query, ids in the path. Whatever does not fit is
//! a problem, never axum's plain text.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde_json::Value;
use uuid::Uuid;

use super::AppState;
use super::problem::{Code, Problem};
use crate::body;

/// A JSON body. Numbers beyond 64 bits are kept as doubles; of a name that stands there twice the last counts.
#[derive(Debug)]
pub(crate) struct JsonBody(pub(crate) Value);

/// A JSON body that may be left out, which is an empty object.
#[derive(Debug)]
pub(crate) struct OptionalJsonBody(pub(crate) Value);

impl FromRequest<AppState> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let (bytes, headers) = read(request, state).await?;
        is_json(&headers)?;
        parse(&bytes).map(Self)
    }
}

impl FromRequest<AppState> for OptionalJsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let (bytes, headers) = read(request, state).await?;
        if bytes.is_empty() {
            return Ok(Self(Value::Object(serde_json::Map::new())));
        }
        is_json(&headers)?;
        parse(&bytes).map(Self)
    }
}

async fn read(request: Request, state: &AppState) -> Result<(Bytes, HeaderMap), Problem> {
    let headers = request.headers().clone();
    // `limits` has read it before, within its limits.
    let bytes =
        Bytes::from_request(request, state).await.map_err(|_| Problem::new(Code::BrokenBody, "the body broke off"))?;
    Ok((bytes, headers))
}

/// A body without a type is taken for JSON; another type named, or another charset, is not.
fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let json = kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    let utf8 = parts
        .filter_map(|parameter| parameter.strip_prefix("charset="))
        .all(|charset| matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii"));
    if json && utf8 {
        return Ok(());
    }
    Err(Problem::new(Code::UnsupportedMediaType, "send JSON in UTF-8, as `Content-Type: application/json`"))
}

fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    body::parse(bytes).map_err(|detail| Problem::new(Code::InvalidJson, format!("the body {detail}")))
}

/// The parameters of a query. Each may stand there once; an empty one is as good as none.
#[derive(Debug)]
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(pairs)) => Ok(Self(pairs)),
            Err(_) => Err(Problem::new(Code::InvalidQuery, "the query cannot be read")),
        }
    }
}

impl Params {
    /// Refuses parameters other than `known`: one that is misspelt and passed over would answer a question
    /// that nobody asked.
    pub(crate) fn only(self, known: &[&str]) -> Result<Self, Problem> {
        for (n, (name, value)) in self.0.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let detail = format!("{name:?} is not a known parameter; known are {}", known.join(", "));
                return Err(Problem::new(Code::InvalidQuery, detail));
            }
            if self.0.iter().take(n).any(|(earlier, _)| earlier == name) {
                return Err(Self::unfit(name, "stands there twice"));
            }
            if value.contains('\0') {
                return Err(Self::unfit(name, "must not contain U+0000"));
            }
        }
        Ok(self)
    }

    /// The parameter's text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
    }

    /// The problem of a parameter that does not fit.
    pub(crate) fn unfit(name: &str, detail: &str) -> Problem {
        Problem::new(Code::InvalidQuery, format!("{name} {detail}"))
    }
}

/// An id in the path. What is no id is the id of nothing: 404.
#[derive(Debug)]
pub(crate) struct Id(pub(crate) Uuid);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| Problem::not_found())?;
        text.parse().map(Self).map_err(|_| Problem::not_found())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_json_in_utf_8() {
        assert!(parse(br#"{"a": "\ud83d\ude00"}"#).is_ok());
        for bad in [&b""[..], b"{", b"{}x", b"\xff", b"\"\xc3\"", br#""\ud800""#, br#""\udc00x""#, b"1e999", b"nul"] {
            assert_eq!(parse(bad).unwrap_err().code(), Code::InvalidJson, "{bad:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert!(parse(&nested(body::MOST_DEPTH)).is_ok());
        for levels in [body::MOST_DEPTH + 1, 127, 128, 200, 100_000] {
            assert_eq!(parse(&nested(levels)).unwrap_err().code(), Code::InvalidJson, "{levels}");
        }
    }

    #[test]
    fn another_type_than_json_is_refused() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            is_json(&headers).is_ok()
        };
        for good in ["application/json", "Application/JSON; Charset=\"UTF-8\"", "application/cloudevents+json"] {
            assert!(of(good), "{good}");
        }
        for bad in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "json", ""] {
            assert!(!of(bad), "{bad}");
        }
        assert!(is_json(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn parameters_are_known_and_stand_there_once() {
        let of = |pairs: &[(&str, &str)]| {
            Params(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()).only(&["a", "b"])
        };
        let params = of(&[("a", "1"), ("b", "")]).unwrap();
        assert_eq!((params.text("a"), params.text("b")), (Some("1"), None));
        for bad in [&[("c", "1")][..], &[("a", "1"), ("a", "2")], &[("a", "x\0")]] {
            assert_eq!(of(bad).unwrap_err().code(), Code::InvalidQuery, "{bad:?}");
        }
    }
}
