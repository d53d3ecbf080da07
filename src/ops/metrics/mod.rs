//! What Prometheus is told. Counters and histograms are counted where things happen; what stands in the
//! database is asked for when somebody scrapes, by bounded queries, at most every few seconds. `docs/metrics.md`
//! explains each of them to operators.

mod gauges;
mod names;

use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

use super::Watch;
use crate::db::Db;
use gauges::Gauges;

/// The type of what [`Metrics::render`] gives.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// From a millisecond, about one commit on a fast disk, to longer than any statement may take.
const SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0];
/// How often what was observed is added up, whether anyone scrapes or not: until then it takes memory.
const UPKEEP: Duration = Duration::from_secs(5);

static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Connection time of one kind of transaction.
#[derive(Clone, Debug)]
pub struct Held {
    /// The transaction's name.
    pub name: String,
    /// Seconds, all together.
    pub seconds: f64,
    /// How many there were.
    pub times: f64,
}

/// The numbers of this process, and those of the database behind it. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    recorder: Option<PrometheusHandle>,
    gauges: Gauges,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics(…)")
    }
}

impl Metrics {
    /// Begins to count, once for the whole process, however often it is called.
    #[must_use]
    pub fn start(db: &Db, watch: &Watch) -> Self {
        let recorder = RECORDER.get_or_init(|| match install() {
            Ok(handle) => Some(handle),
            Err(error) => {
                tracing::error!(%error, "nothing is counted for /metrics");
                None
            }
        });
        Self { recorder: recorder.clone(), gauges: Gauges::of(db, watch) }
    }

    /// How long transactions of this process kept their connections, by name, since it started.
    #[must_use]
    pub fn connection_seconds(&self) -> Vec<Held> {
        let text = self.recorder.as_ref().map(PrometheusHandle::render).unwrap_or_default();
        let of = |line: &str, what: &str| {
            let rest = line.strip_prefix("onehold_transaction_seconds_")?.strip_prefix(what)?;
            let (name, value) = rest.strip_prefix("{name=\"")?.split_once("\"} ")?;
            Some((name.to_owned(), value.parse::<f64>().ok()?))
        };
        let counts: HashMap<String, f64> = text.lines().filter_map(|line| of(line, "count")).collect();
        let sums = text.lines().filter_map(|line| of(line, "sum"));
        sums.map(|(name, seconds)| Held { times: counts.get(&name).copied().unwrap_or_default(), name, seconds })
            .collect()
    }

    /// Everything in Prometheus's text format. Asks the database for a few seconds at most; where that does not
    /// do, `onehold_database_asked` is 0 and the numbers of the database are left out.
    pub async fn render(&self) -> String {
        let mut text = self.recorder.as_ref().map(PrometheusHandle::render).unwrap_or_default();
        text.push_str(&self.gauges.render().await);
        text
    }
}

fn install() -> Result<PrometheusHandle, BuildError> {
    let recorder = PrometheusBuilder::new().set_buckets(&SECONDS)?.build_recorder();
    let handle = recorder.handle();
    // Fails only where another recorder was installed, which nobody here does.
    if let Err(error) = metrics::set_global_recorder(recorder) {
        tracing::error!(%error, "another recorder counts");
    }
    names::describe();
    let upkeep = handle.clone();
    let kept = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(UPKEEP);
            upkeep.run_upkeep();
        }
    });
    if let Err(error) = kept {
        tracing::error!(%error, "what is counted is added up only when somebody scrapes");
    }
    Ok(handle)
}

/// A lock whose holder never panics half-way.
fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
