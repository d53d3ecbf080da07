//! Who asks, and whether the key is for this.

use std::marker::PhantomData;
use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};

use super::AppState;
use super::problem::{Code, Problem};
use crate::shops::{Caller, Scope};

/// A scope as a type, so that a handler's signature says what it needs.
pub(crate) trait Needs {
    const SCOPE: Scope;
}

/// [`Scope::Orders`].
#[derive(Debug)]
pub(crate) struct Orders;
/// [`Scope::Stock`].
#[derive(Debug)]
pub(crate) struct Stock;

/// [`Scope::Ops`].
#[derive(Debug)]
pub(crate) struct Ops;

impl Needs for Orders {
    const SCOPE: Scope = Scope::Orders;
}

impl Needs for Stock {
    const SCOPE: Scope = Scope::Stock;
}

impl Needs for Ops {
    const SCOPE: Scope = Scope::Ops;
}

/// The caller, whose key has the scope `S`. Otherwise the answer is 401 or 403, before the body is looked
/// at.
#[derive(Debug)]
pub(crate) struct Authorised<S> {
    caller: Caller,
    scope: PhantomData<S>,
}

impl<S> Deref for Authorised<S> {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl<S: Needs> FromRequestParts<AppState> for Authorised<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let key = bearer(&parts.headers).ok_or_else(unauthorized)?;
        let caller = state.keyring.authenticate(&state.db, key).await?.ok_or_else(unauthorized)?;
        if !caller.scopes.contains(&S::SCOPE) {
            let scope = S::SCOPE.code();
            return Err(Problem::new(Code::Forbidden, format!("the key lacks the scope {scope}")));
        }
        Ok(Self { caller, scope: PhantomData })
    }
}

/// The same answer whatever was wrong, so that nobody learns which keys exist.
pub(super) fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "send a live API key as `Authorization: Bearer KEY`")
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"onehold\""))
}

/// The key of the one `Authorization` header; two could be read in two ways.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        bearer(&headers).map(str::to_owned)
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case_and_stands_there_once() {
        assert_eq!(of(&["Bearer k"]).as_deref(), Some("k"));
        assert_eq!(of(&["bearer  k "]).as_deref(), Some("k"));
        for bad in [&[][..], &["k"], &["Basic k"], &["Bearer"], &["Bearer "], &["Bearer a", "Bearer a"]] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
