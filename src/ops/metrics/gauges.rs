//! What stands in the database, as gauges: asked for at most every five seconds, however many scrape, each
//! question bounded in rows and all of them in time.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::Watch;
use super::super::standing;
use super::locked;
use crate::db::Db;

/// How old numbers may be.
const FRESH: Duration = Duration::from_secs(5);
/// How long the database may take for all of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the database said, and when.
type Told = (Instant, Arc<str>);

/// The gauges of one database.
#[derive(Clone)]
pub(super) struct Gauges {
    db: Db,
    watch: Watch,
    last: Arc<Mutex<Option<Told>>>,
    /// One scrape asks; the others wait for its answer.
    asking: Arc<tokio::sync::Mutex<()>>,
}

impl Gauges {
    pub(super) fn of(db: &Db, watch: &Watch) -> Self {
        Self { db: db.clone(), watch: watch.clone(), last: Arc::default(), asking: Arc::default() }
    }

    pub(super) async fn render(&self) -> String {
        let mut text = Text::default();
        let pool = self.db.pool();
        let idle = pool.num_idle();
        let in_use = usize::try_from(pool.size()).unwrap_or_default().saturating_sub(idle);
        let connections = [("idle", idle), ("in_use", in_use)].map(|(state, n)| (label("state", state), number(n)));
        text.gauge("onehold_connections", "Connections of this process to the database.", connections);
        let most = number(pool.options().get_max_connections() as usize);
        text.gauge("onehold_connections_most", "The most connections this process may have.", [(String::new(), most)]);
        let version = label("version", env!("CARGO_PKG_VERSION"));
        text.gauge("onehold_build_info", "The release that answers; always 1.", [(version, 1.0)]);
        let stands = self.of_the_database().await;
        let asked = [(String::new(), if stands.is_some() { 1.0 } else { 0.0 })];
        text.gauge("onehold_database_asked", "Whether the database gave its numbers in time.", asked);
        if let Some(stands) = stands {
            text.0.push_str(&stands);
        }
        text.0
    }

    async fn of_the_database(&self) -> Option<Arc<str>> {
        let _turn = self.asking.lock().await;
        let fresh = |last: &Option<Told>| {
            last.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, text)| Arc::clone(text))
        };
        if let Some(text) = fresh(&locked(&self.last)) {
            return Some(text);
        }
        // On a task of its own: a query that is dropped half-way costs its connection.
        let watch = self.watch.clone();
        let asked = tokio::spawn(async move { ask(&watch).await });
        let text: Arc<str> = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(Ok(text))) => text.into(),
            Ok(Ok(Err(error))) => {
                tracing::warn!(%error, "the numbers of the database are missing in /metrics");
                return None;
            }
            Ok(Err(_)) | Err(_) => return None,
        };
        *locked(&self.last) = Some((Instant::now(), Arc::clone(&text)));
        Some(text)
    }
}

async fn ask(watch: &Watch) -> Result<String, sqlx::Error> {
    let depths = standing::queues(watch).await?;
    let stands = standing::stands(watch, None).await?;
    let mut text = Text::default();
    let states = depths.iter().flat_map(|d| {
        let of = |state, n: i64| (format!("queue=\"{}\",state=\"{state}\"", d.queue), number_of(n));
        [of("ready", d.ready), of("later", d.later), of("running", d.running), of("dead", d.dead)]
    });
    text.gauge("onehold_queue_jobs", "Jobs by queue and state; counting ends at 10001.", states);
    let oldest = depths.iter().map(|d| (label("queue", &d.queue), d.oldest));
    text.gauge("onehold_queue_oldest_seconds", "For how long the longest due job has been due.", oldest);
    let paused = depths.iter().map(|d| (label("queue", &d.queue), if d.paused { 1.0 } else { 0.0 }));
    text.gauge("onehold_queue_paused", "Whether operators have paused the queue.", paused);
    let trouble = [("late", stands.late), ("mismatch", stands.mismatch), ("refund_due", stands.refund_due)];
    let trouble = trouble.map(|(state, n)| (label("state", state), number_of(n)));
    text.gauge("onehold_orders_in_trouble", "Orders whose money needs a person; counting ends at 1001.", trouble);
    for (name, help, value) in [
        ("onehold_workers", "Worker lines (one per process and queue) seen within 15 s.", number_of(stands.workers)),
        ("onehold_worker_silence_seconds", "How long ago the most silent worker was seen.", stands.silence),
        (
            "onehold_holds_lapsing",
            "Holds that lapse within five minutes; counting ends at 10001.",
            number_of(stands.lapsing),
        ),
        ("onehold_sweep_lag_seconds", "For how long the longest lapsed hold waits for the sweep.", stands.sweep_lag),
        ("onehold_placed_oldest_seconds", "For how long the oldest undecided order has waited.", stands.placed_oldest),
        ("onehold_payments_waiting", "Payment events not applied; counting ends at 1001.", number_of(stands.payments)),
        ("onehold_payments_oldest_seconds", "For how long the oldest such event has waited.", stands.payments_oldest),
        (
            "onehold_shortfalls",
            "Pools that lack units which are held; counting ends at 1001.",
            number_of(stands.shortfalls),
        ),
    ] {
        text.gauge(name, help, [(String::new(), value)]);
    }
    Ok(text.0)
}

/// Prometheus's text format.
#[derive(Default)]
struct Text(String);

impl Text {
    fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, f64)>) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

/// Values are our own words: nothing in them needs escaping.
fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{value}\"")
}

fn number(n: usize) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

fn number_of(n: i64) -> f64 {
    usize::try_from(n).map_or(0.0, number)
}
