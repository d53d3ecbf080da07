//! One attempt: signed, bounded in time and size, and never led elsewhere.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url, header};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

pub(super) use super::address::INSIDE;
use super::address::{PublicOnly, is_public};
use super::schedule;
use crate::traces::TRACEPARENT;

/// How long an attempt may take, from the look-up of the name to the answer's end.
pub const LIMIT: Duration = Duration::from_secs(15);
/// How much of an answer is read. What it says matters to people who look for a mistake, and only its beginning.
const MOST_READ: usize = 64 * 1024;
/// How many characters of a failure are kept.
const MOST_KEPT: usize = 300;

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A 2xx.
    Accepted(u16),
    /// 410: the receiver wants nothing any more.
    Gone(String),
    /// Anything else, a redirection included.
    Refused {
        status: Option<u16>,
        error: String,
        /// What `Retry-After` asked for.
        asked: Option<Duration>,
    },
}

/// Two ways out: to the internet alone, and anywhere.
#[derive(Clone)]
pub(super) struct Sender {
    public: Client,
    anywhere: Client,
}

impl Sender {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let builder = || {
            Client::builder()
                .timeout(LIMIT)
                .redirect(Policy::none())
                .no_proxy()
                .user_agent(concat!("onehold/", env!("CARGO_PKG_VERSION")))
        };
        Ok(Self { public: builder().dns_resolver(Arc::new(PublicOnly)).build()?, anywhere: builder().build()? })
    }

    /// Sends one message, with the trace that it is a part of. Never fails: what goes wrong is an answer.
    pub(super) async fn send(&self, to: &To<'_>, id: &str, body: String, trace: Option<&str>) -> Answer {
        match self.attempt(to, id, body, trace).await {
            Ok(response) => judge(response).await,
            Err(error) => Answer::Refused { status: None, error: shortened(&error), asked: None },
        }
    }

    async fn attempt(&self, to: &To<'_>, id: &str, body: String, trace: Option<&str>) -> Result<Response, String> {
        let url = usable(to.url, to.allow_private)?;
        let now = Utc::now().timestamp();
        let signature = Webhook::new(to.secret)
            .and_then(|webhook| webhook.sign(id, now, body.as_bytes()))
            .map_err(|error| error.to_string())?;
        let client = if to.allow_private { &self.anywhere } else { &self.public };
        let mut request = client.post(url);
        if let Some(trace) = trace {
            request = request.header(TRACEPARENT, trace);
        }
        request
            .header(header::CONTENT_TYPE, "application/json")
            .header(HEADER_WEBHOOK_ID, id)
            .header(HEADER_WEBHOOK_TIMESTAMP, now)
            .header(HEADER_WEBHOOK_SIGNATURE, signature)
            .body(body)
            .send()
            .await
            .map_err(|error| whole(&error))
    }
}

/// Where to, and signed with what.
pub(super) struct To<'a> {
    pub(super) url: &'a str,
    pub(super) secret: &'a str,
    pub(super) allow_private: bool,
}

/// The URL, where it can be used: https, without a password in it, and not an address inside, unless that is allowed,
/// and http with it. Names are judged when they are looked up. Otherwise why not, as the end of a sentence about it.
pub(super) fn usable(text: &str, allow_private: bool) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    if url.scheme() != "https" && !(allow_private && url.scheme() == "http") {
        return Err("must begin with https:// (http:// is for endpoints that may be private)".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user or password".to_owned());
    }
    // An address is never looked up, so it is judged here.
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    if !allow_private && host.parse::<IpAddr>().is_ok_and(|address| !is_public(address)) {
        return Err(INSIDE.to_owned());
    }
    Ok(url)
}

async fn judge(mut response: Response) -> Answer {
    let status = response.status();
    let asked = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let asked = asked.and_then(|text| schedule::asked(text, Utc::now()));
    if status.is_success() {
        // What the answer says is of no interest; a body that breaks off takes nothing back.
        return Answer::Accepted(status.as_u16());
    }
    let mut said = Vec::new();
    while said.len() < MOST_READ {
        match response.chunk().await {
            Ok(Some(chunk)) => said.extend_from_slice(&chunk[..chunk.len().min(MOST_READ - said.len())]),
            Ok(None) | Err(_) => break,
        }
    }
    let error = shortened(&format!("{status}: {}", String::from_utf8_lossy(&said)));
    match status {
        StatusCode::GONE => Answer::Gone(error),
        _ => Answer::Refused { status: Some(status.as_u16()), error, asked },
    }
}

/// An error with what caused it: the cause says what an operator can mend.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// As the database takes it: bounded, and without U+0000.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(MOST_KEPT).collect()
}
