//! The API as a document (`/openapi.json`) and as a page to be read (`/docs`), both out of this binary. They are the
//! same in every installation and hold nothing of a shop, so no key is needed. Tests compare the document with the
//! routes, with the problems' codes and with real answers.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::Router;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use serde_json::Value;

use super::AppState;

const DOCUMENT: &str = include_str!("document.json");
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    pre{background:#8881;padding:.7rem;overflow:auto;font-size:.85rem}h2{margin-top:2.5rem}\
    summary{cursor:pointer}code{font-size:.95em}:root{color-scheme:light dark}";
/// The page loads nothing, from nowhere, and runs nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

static PAGE: LazyLock<String> = LazyLock::new(|| page(&serde_json::from_str(DOCUMENT).unwrap_or_default()));

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/openapi.json", get(document)).route("/docs", get(docs))
}

async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

async fn docs() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE.as_str()))
}

/// Every operation by its tag, and every schema, with nothing that must be fetched.
fn page(document: &Value) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Onehold: the API</title><style>{STYLE}</style>\
         <h1>Onehold: the API</h1><p>{} The same for machines: <a href=\"/openapi.json\">openapi.json</a>.",
        text(&document["info"]["description"])
    );
    let mut tag = String::new();
    for (path, methods) in entries(&document["paths"]) {
        for (method, operation) in entries(methods) {
            if tag != text(&operation["tags"][0]) {
                tag = text(&operation["tags"][0]);
                add(&mut html, format_args!("<h2>{tag}</h2>"));
            }
            let head = format!("{} {}", method.to_uppercase(), escape(path));
            add(&mut html, format_args!("<h3><code>{head}</code></h3><p>{}", text(&operation["summary"])));
            for part in ["parameters", "requestBody", "responses"] {
                detail(&mut html, part, part, &operation[part]);
            }
        }
    }
    html.push_str("<h2>Schemas</h2>");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        detail(&mut html, &escape(name), name, schema);
    }
    html
}

fn add(html: &mut String, part: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = html.write_fmt(part);
}

/// A part that is folded away; nothing where there is none.
fn detail(html: &mut String, title: &str, id: &str, part: &Value) {
    if !part.is_null() {
        let shown = escape(&serde_json::to_string_pretty(part).unwrap_or_default());
        let id = escape(id);
        add(html, format_args!("<details id=\"{id}\"><summary>{title}</summary><pre>{shown}</pre></details>"));
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DOCUMENT, page};
    use crate::web::problem::Code;

    #[test]
    fn every_problem_stands_in_the_document_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let told = &document["components"]["schemas"]["Problem"]["properties"]["type"]["enum"];
        let codes: Vec<_> = Code::ALL.iter().map(|code| format!("/problems/{}", code.code())).collect();
        assert_eq!(told, &json!(codes));
    }

    #[test]
    fn the_page_shows_markup_as_text() {
        let html = page(&json!({"info": {"description": "<b>"}, "paths": {"/<i>": {"get": {"summary": "<u>"}}}}));
        for markup in ["<b>", "<i>", "<u>"] {
            assert!(!html.contains(markup), "{html}");
        }
    }
}
