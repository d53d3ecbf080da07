//! Who looks at the dashboard: a browser that signed in with a key of scope ops, or a caller with such a key.

use std::collections::HashMap;

use axum::Form;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use subtle::ConstantTimeEq as _;

use super::page::{self, Refused};
use crate::shops::sessions::{self, LASTS, Session};
use crate::shops::{Caller, Scope};
use crate::web::AppState;
use crate::web::auth::{Authorised, Ops, bearer, unauthorized};
use crate::web::problem::Problem;

const COOKIE: &str = "onehold_session";
/// The field that every form carries.
pub(super) const FORM_TOKEN: &str = "form_token";

/// An operator.
#[derive(Debug)]
pub(super) struct Operator {
    pub(super) caller: Caller,
    /// None where the request carries its key itself.
    pub(super) session: Option<Session>,
    /// Whether he looks after the whole installation, and not one shop of several.
    pub(super) installation: bool,
}

impl Operator {
    pub(super) fn shop(&self) -> i32 {
        self.caller.shop.id
    }

    pub(super) fn form_token(&self) -> &str {
        self.session.as_ref().map_or("", |session| &session.form_token)
    }

    pub(super) fn may(&self, scope: Scope) -> bool {
        self.caller.scopes.contains(&scope)
    }
}

impl FromRequestParts<AppState> for Operator {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refused> {
        let (caller, session) = if parts.headers.contains_key(header::AUTHORIZATION) {
            let key = bearer(&parts.headers).ok_or(Refused::Unknown)?;
            let caller = state.keyring.authenticate(&state.db, key).await?;
            (caller.ok_or(Refused::Unknown)?, None)
        } else {
            let token = cookie(&parts.headers).ok_or(Refused::Unknown)?;
            let session = sessions::find(&state.db, &state.keyring, token).await?.ok_or(Refused::Unknown)?;
            (session.caller.clone(), Some(session))
        };
        if !caller.scopes.contains(&Scope::Ops) {
            return Err(Refused::Scope(Scope::Ops));
        }
        let installation = sessions::is_of_the_installation(&state.db, &caller).await?;
        Ok(Self { caller, session, installation })
    }
}

/// Whoever may read what is for operators and no page: by a key of scope ops, or by an operator's session. The
/// answer to others is a problem.
#[derive(Debug)]
pub(crate) struct Watcher;

impl FromRequestParts<AppState> for Watcher {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        if parts.headers.contains_key(header::AUTHORIZATION) || cookie(&parts.headers).is_none() {
            return Authorised::<Ops>::from_request_parts(parts, state).await.map(|_| Self);
        }
        match Operator::from_request_parts(parts, state).await {
            Ok(_) => Ok(Self),
            Err(Refused::Fault(fault)) => Err(fault.into()),
            Err(_) => Err(unauthorized()),
        }
    }
}

/// A form that an operator sent, and no page of another site: a session's form carries the session's token. A
/// request that carries its key itself cannot be made by a browser on its own.
pub(super) struct Action {
    pub(super) operator: Operator,
    pub(super) fields: HashMap<String, String>,
}

impl Action {
    /// A field without white space around it; none where it is missing or empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
    }

    /// # Errors
    /// A key that lacks the scope.
    pub(super) fn needs(&self, scope: Scope) -> Result<(), Refused> {
        if self.operator.may(scope) { Ok(()) } else { Err(Refused::Scope(scope)) }
    }

    /// # Errors
    /// A key of one of several shops.
    pub(super) fn needs_the_installation(&self) -> Result<(), Refused> {
        if self.operator.installation { Ok(()) } else { Err(Refused::Installation) }
    }
}

impl FromRequest<AppState> for Action {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Refused> {
        let (mut parts, body) = request.into_parts();
        let operator = Operator::from_request_parts(&mut parts, state).await?;
        let own = is_own_page(&parts.headers);
        let fields = form(Request::from_parts(parts, body), state).await?;
        if let Some(session) = &operator.session {
            let token = fields.get(FORM_TOKEN).map_or("", String::as_str);
            if !own || !bool::from(token.as_bytes().ct_eq(session.form_token.as_bytes())) {
                return Err(Refused::Foreign);
            }
        }
        Ok(Self { operator, fields })
    }
}

async fn form(request: Request, state: &AppState) -> Result<HashMap<String, String>, Refused> {
    let form = Form::<HashMap<String, String>>::from_request(request, state).await;
    form.map(|Form(fields)| fields).map_err(|_| Refused::Form("the form could not be read".to_owned()))
}

/// Whether the request can come from a page of ours. Browsers say where it comes from; others say nothing, and
/// are told by what they carry.
fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site")) {
        return matches!(site, "same-origin" | "none");
    }
    match text(header::ORIGIN) {
        None => true,
        Some(origin) => origin.split_once("://").map(|(_, host)| host) == text(header::HOST),
    }
}

/// The one cookie of ours; two could be read in two ways.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut ours = all
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(name, value)| (name == COOKIE).then_some(value));
    let token = ours.next()?;
    ours.next().is_none().then_some(token)
}

/// Opens a session with the key in the form.
pub(super) async fn sign_in(State(state): State<AppState>, request: Request) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    if !is_own_page(&parts.headers) {
        return Err(Refused::Foreign);
    }
    let secure = is_behind_tls(&parts.headers, &parts.uri);
    let fields = form(Request::from_parts(parts, body), &state).await?;
    let key = fields.get("key").map_or("", |key| key.trim());
    let caller = state.keyring.authenticate(&state.db, key).await?.ok_or(Refused::WrongKey)?;
    if !caller.scopes.contains(&Scope::Ops) {
        return Err(Refused::WrongKey);
    }
    let token = sessions::open(&state.db, key, &caller).await?;
    tracing::info!(shop = caller.shop.id, key = caller.key_name, "an operator signed in");
    Ok(with_cookie(Redirect::to("/ops").into_response(), &token, LASTS.as_secs(), secure))
}

/// Ends this session, or with `everywhere` every session of its key.
pub(super) async fn sign_out(State(state): State<AppState>, action: Action) -> Result<Response, Refused> {
    if let Some(session) = &action.operator.session {
        if action.text("everywhere").is_some() {
            sessions::end_all(&state.db, session).await?;
        } else {
            sessions::end(&state.db, session).await?;
        }
    }
    let page = (StatusCode::OK, page::sign_in(Some("You have signed out."))).into_response();
    Ok(with_cookie(page, "", 0, false))
}

/// A proxy that ends TLS says so.
fn is_behind_tls(headers: &HeaderMap, uri: &Uri) -> bool {
    let forwarded = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
    forwarded.is_some_and(|proto| proto.trim().eq_ignore_ascii_case("https"))
        || uri.scheme_str().is_some_and(|scheme| scheme == "https")
}

fn with_cookie(mut response: Response, token: &str, seconds: u64, secure: bool) -> Response {
    let secure = if secure { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_page_of_another_site_is_told_by_what_the_browser_says() {
        for own in [
            &[][..],
            &[("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
            &[("origin", "http://ops.example"), ("host", "ops.example")],
        ] {
            assert!(is_own_page(&headers(own)), "{own:?}");
        }
        for foreign in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "null"), ("host", "ops.example")],
            &[("origin", "http://ops.example.evil"), ("host", "ops.example")],
            &[("origin", "http://evil"), ("host", "ops.example")],
            &[("origin", "http://evil")],
        ] {
            assert!(!is_own_page(&headers(foreign)), "{foreign:?}");
        }
    }

    #[test]
    fn the_cookie_stands_there_once_among_others() {
        let of = |lines: &[(&'static str, &str)]| cookie(&headers(lines)).map(str::to_owned);
        assert_eq!(of(&[("cookie", "a=b; onehold_session=main.1")]).as_deref(), Some("main.1"));
        assert_eq!(of(&[("cookie", "a=b"), ("cookie", "onehold_session=x")]).as_deref(), Some("x"));
        assert_eq!(of(&[("cookie", "onehold_session=x; onehold_session=y")]), None);
        assert_eq!(of(&[("cookie", "xonehold_session=x")]), None);
    }
}
