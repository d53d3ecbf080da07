//! One trace from a request through its job to what is told outside, for those who gather traces by OpenTelemetry:
//! on only where a collector is named. A job begins in another process than its request, so what it follows is kept
//! beside it (`onehold.traces`), by its order's key or its payment event: names that are known before anything is
//! stored. Nothing here ever fails a request or a job.

mod export;
mod sql;

use std::sync::OnceLock;

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use sqlx::PgPool;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use uuid::Uuid;

pub use export::{Exporting, start};

/// The header by which a trace goes on (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";

static ON: OnceLock<()> = OnceLock::new();

/// Whether traces are gathered in this process.
#[must_use]
pub fn on() -> bool {
    ON.get().is_some()
}

/// What a job will be about, by a name that is known before it is stored.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    /// An order that is placed under this key.
    Key(&'a str),
    /// An event of this provider.
    Event(&'a str, &'a str),
}

impl About<'_> {
    fn name(self) -> String {
        match self {
            Self::Key(key) => format!("key:{key}"),
            Self::Event(provider, event) => format!("{provider}:{event}"),
        }
    }
}

/// The span in which something is put into a queue; none where no traces are gathered.
#[must_use]
pub fn sending(queue: &'static str) -> Span {
    if !on() {
        return Span::none();
    }
    tracing::info_span!(
        "send",
        "otel.name" = format!("send {queue}"),
        "otel.kind" = "producer",
        "messaging.system" = "onehold",
        "messaging.operation.type" = "send",
        "messaging.operation.name" = "send",
        "messaging.destination.name" = queue,
    )
}

/// The span in which a job is worked on, as a part of the trace that it follows; none where no traces are gathered.
#[must_use]
pub fn processing(queue: &'static str, job: &str, attempt: u16, follows: Option<&str>) -> Span {
    if !on() {
        return Span::none();
    }
    let span = tracing::info_span!(
        "process",
        "otel.name" = format!("process {queue}"),
        "otel.kind" = "consumer",
        "otel.status_code" = tracing::field::Empty,
        "messaging.system" = "onehold",
        "messaging.operation.type" = "process",
        "messaging.operation.name" = "process",
        "messaging.destination.name" = queue,
        "messaging.message.id" = job,
        "onehold.attempt" = attempt,
    );
    follow(&span, follows);
    span
}

/// The span in which an outbound event is delivered, as [`processing`].
#[must_use]
pub fn delivering(kind: &str, event: Uuid, attempt: i32, follows: Option<&str>) -> Span {
    if !on() {
        return Span::none();
    }
    let span = tracing::info_span!(
        "deliver",
        "otel.name" = format!("send {kind}"),
        "otel.kind" = "producer",
        "otel.status_code" = tracing::field::Empty,
        "messaging.system" = "webhook",
        "messaging.operation.type" = "send",
        "messaging.operation.name" = "deliver",
        "messaging.destination.name" = kind,
        "messaging.message.id" = %event,
        "onehold.attempt" = attempt,
    );
    follow(&span, follows);
    span
}

/// Says that what the span is about did not go well.
pub fn failed(span: &Span) {
    span.record("otel.status_code", "ERROR");
}

/// Makes a span that has not begun a part of the trace that this `traceparent` names, if it names one.
pub fn follow(span: &Span, traceparent: Option<&str>) {
    let Some(value) = traceparent.and_then(|text| text.parse().ok()) else { return };
    let headers = HeaderMap::from_iter([(http::HeaderName::from_static(TRACEPARENT), value)]);
    let context = TraceContextPropagator::new().extract(&HeaderExtractor(&headers));
    if context.span().span_context().is_valid() {
        // Fails for a span that is not exported, which then follows nothing.
        let _ = span.set_parent(context);
    }
}

/// The `traceparent` of a span; none where its trace is not gathered.
#[must_use]
pub fn carried(span: &Span) -> Option<String> {
    if !on() {
        return None;
    }
    let context = span.context();
    if !context.span().span_context().is_sampled() {
        return None;
    }
    let mut headers = HeaderMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(&mut headers));
    headers.get(TRACEPARENT)?.to_str().ok().map(str::to_owned)
}

/// Keeps the current span as what the job about this will follow. To be done before the job can begin.
///
/// Safe to repeat: the first one stays.
pub async fn keep(pool: &PgPool, shop_id: i32, about: About<'_>) {
    let Some(traceparent) = carried(&Span::current()) else { return };
    if let Err(error) = sql::keep(pool, shop_id, &about.name(), &traceparent).await {
        tracing::debug!(%error, "a trace ends here");
    }
}

/// What the job about an order follows.
pub async fn of_order(pool: &PgPool, shop_id: i32, order: Uuid) -> Option<String> {
    found(on().then(|| sql::of_order(pool, shop_id, order))).await
}

/// What the job about a payment event follows.
pub async fn of_payment(pool: &PgPool, shop_id: i32, provider: &str, event: &str) -> Option<String> {
    let about = About::Event(provider, event).name();
    found(on().then(|| sql::of(pool, shop_id, &about))).await
}

/// What an outbound event follows: its order's placing.
pub async fn of_outbound(pool: &PgPool, shop_id: i32, event: Uuid) -> Option<String> {
    found(on().then(|| sql::of_outbound(pool, shop_id, event))).await
}

async fn found(asked: Option<impl Future<Output = Result<Option<String>, sqlx::Error>>>) -> Option<String> {
    asked?.await.unwrap_or_else(|error| {
        tracing::debug!(%error, "a trace begins anew");
        None
    })
}

/// Forgets what is older than a week, a bounded number at a time. Gives how many.
///
/// # Errors
/// What the database answers.
pub async fn forget(pool: &PgPool) -> Result<u64, sqlx::Error> {
    sql::forget(pool).await
}
