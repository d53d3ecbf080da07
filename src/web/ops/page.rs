//! What every page of the dashboard has around it, and the pages that say no.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use maud::{DOCTYPE, Markup, html};

use super::session::{FORM_TOKEN, Operator};
use crate::db::Fault;
pub(super) use crate::ops::words::{at_least, grouped, span};
use crate::shops::Scope;

const TABS: [(&str, &str); 5] = [
    ("/ops", "Overview"),
    ("/ops/orders", "Orders"),
    ("/ops/inventory", "Inventory"),
    ("/ops/queues", "Queues"),
    ("/ops/connections", "Connections"),
];

/// A page, with the tab that leads to it marked.
pub(super) fn page(operator: &Operator, title: &str, tab: &str, content: Markup) -> Markup {
    frame(
        title,
        html! {
            a.skip href="#content" { "To the content" }
            header {
                a.brand href="/ops" { "Onehold" }
                nav aria-label="Pages" {
                    @for (path, name) in TABS {
                        a href=(path) aria-current=[(path == tab).then_some("page")] { (name) }
                    }
                }
                form.sign-out method="post" action="/ops/sign-out" {
                    span { (operator.caller.shop.name) " · " (operator.caller.key_name) }
                    @if operator.session.is_some() {
                        (token(operator))
                        button.quiet { "Sign out" }
                    }
                }
            }
            main id="content" { h1 { (title) } (content) }
        },
    )
}

/// The hidden field without which an action is refused.
pub(super) fn token(operator: &Operator) -> Markup {
    html! { input type="hidden" name=(FORM_TOKEN) value=(operator.form_token()); }
}

fn frame(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Onehold" }
                link rel="stylesheet" href="/ops/style.css";
                link rel="icon" href="/ops/icon.svg" type="image/svg+xml";
                script src="/ops/live.js" defer {}
            }
            body { (body) }
        }
    }
}

/// The page to sign in on.
pub(super) fn sign_in(said: Option<&str>) -> Markup {
    frame(
        "Sign in",
        html! {
            main.narrow id="content" {
                h1 { "Onehold" }
                @if let Some(said) = said { p.notice role="status" { (said) } }
                form method="post" action="/ops/sign-in" {
                    label for="key" { "API key with the scope ops" }
                    input id="key" name="key" type="password" autocomplete="current-password" required autofocus;
                    button { "Sign in" }
                }
                p.hint { "A key is made by " code { "onehold keys create --shop main --scope ops" } ". A session lasts twelve hours." }
            }
        },
    )
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum Refused {
    /// Neither a session nor a key.
    Unknown,
    /// No key that may sign in.
    WrongKey,
    /// The key lacks this scope.
    Scope(Scope),
    /// For those who look after the whole installation.
    Installation,
    /// A form that does not come from a page of ours.
    Foreign,
    /// What was sent does not fit.
    Form(String),
    /// The state of things does not allow it.
    Conflict(String),
    /// There is no such thing in this shop.
    NotFound,
    /// The database did not answer.
    Fault(Fault),
}

impl<E: Into<Fault>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, said) = match self {
            Self::Unknown => {
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"onehold\"")];
                return (StatusCode::UNAUTHORIZED, challenge, sign_in(None)).into_response();
            }
            Self::WrongKey => {
                let said = "That is no live key with the scope ops.";
                return (StatusCode::UNAUTHORIZED, sign_in(Some(said))).into_response();
            }
            Self::Scope(scope) => (StatusCode::FORBIDDEN, format!("Your key lacks the scope {}.", scope.code())),
            Self::Installation => {
                let said = "Queues belong to the whole installation: this needs its first key (ONEHOLD_BOOTSTRAP_KEY).";
                (StatusCode::FORBIDDEN, said.to_owned())
            }
            Self::Foreign => {
                let said =
                    "This form does not come from a page of this session. Go back, load the page again, and repeat.";
                (StatusCode::FORBIDDEN, said.to_owned())
            }
            Self::Form(said) => (StatusCode::UNPROCESSABLE_ENTITY, said),
            Self::Conflict(said) => (StatusCode::CONFLICT, said),
            Self::NotFound => (StatusCode::NOT_FOUND, "There is no such thing here.".to_owned()),
            Self::Fault(fault) => {
                tracing::warn!(%fault, "a page of the dashboard could not be made");
                let said = "The database did not answer this in time. Try again; if it stays so, look at /readyz.";
                (StatusCode::SERVICE_UNAVAILABLE, said.to_owned())
            }
        };
        let page = frame(
            "Refused",
            html! {
                main.narrow id="content" {
                    h1 { "That was not done" }
                    p.notice role="alert" { (said) }
                    p { a href="/ops" { "To the overview" } }
                }
            },
        );
        (status, page).into_response()
    }
}

/// An instant, to the second.
pub(super) fn instant(at: DateTime<Utc>) -> Markup {
    html! { time datetime=(at.to_rfc3339()) { (at.format("%Y-%m-%d %H:%M:%S")) } }
}
