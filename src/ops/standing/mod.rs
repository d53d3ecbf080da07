//! How things stand at this moment: what waits in the queues, what is held, and what needs a person. Behind the
//! gauges of `/metrics` and the overview of the dashboard.

mod problems;
mod sql;

use chrono::{DateTime, Utc};

use super::Watch;
use crate::queue::catalogue;
pub use problems::{Problem, problems};

/// Where the counting of jobs and of lapsing holds ends: this many means "at least one less".
pub const MOST_JOBS: i64 = 10_001;
/// Where other countings end.
pub const MOST_OTHERS: i64 = 1_001;
const MOST_WORKERS: i64 = 200;

/// A queue.
#[derive(Clone, Debug)]
pub struct Depth {
    /// Its name.
    pub queue: String,
    /// Jobs that are due, at most [`MOST_JOBS`], as of the next three.
    pub ready: i64,
    /// Jobs that wait for their time or their next attempt.
    pub later: i64,
    /// Jobs that workers have in hand.
    pub running: i64,
    /// Dead letters.
    pub dead: i64,
    /// For how many seconds the longest due job has been due.
    pub oldest: f64,
    /// Whether operators have paused it.
    pub paused: bool,
}

/// What stands where, of one shop or of all; counts end at [`MOST_OTHERS`] a shop.
#[derive(Clone, Debug)]
pub struct Stands {
    /// Lines of workers seen within 15 s.
    pub workers: i64,
    /// How many seconds ago the most silent worker was seen.
    pub silence: f64,
    /// Holds that lapse within five minutes, at most [`MOST_JOBS`] a shop.
    pub lapsing: i64,
    /// For how many seconds the longest lapsed hold has waited for the sweep.
    pub sweep_lag: f64,
    /// How many seconds ago the last sweep ended; none where no finished one is kept.
    pub swept: Option<f64>,
    /// For how many seconds the oldest undecided order has waited.
    pub placed_oldest: f64,
    /// Payment events that are not applied.
    pub payments: i64,
    /// For how many seconds the oldest of them has waited.
    pub payments_oldest: f64,
    /// Orders whose money came late and is being dealt with.
    pub late: i64,
    /// Orders whose money does not fit.
    pub mismatch: i64,
    /// Orders with money for which there is nothing to sell.
    pub refund_due: i64,
    /// Pools that lack units.
    pub shortfalls: i64,
}

/// One line of a worker process: it works on one queue.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its name: host, process, start, queue.
    pub name: String,
    /// Its queue.
    pub queue: String,
    /// The release that it runs; empty of one that did not say.
    pub release: String,
    /// How many seconds ago it was seen.
    pub silence: f64,
    /// When it started.
    pub started_at: Option<DateTime<Utc>>,
    /// How many jobs it has in hand, at most 1,001.
    pub running: i64,
}

/// Every queue of the catalogue, in its order.
///
/// # Errors
/// What the database answers; it works for at most two seconds.
pub async fn queues(watch: &Watch) -> Result<Vec<Depth>, sqlx::Error> {
    let names: Vec<String> = catalogue::ALL.iter().map(|queue| queue.name.to_owned()).collect();
    sql::queues(watch.pool(), &names).await
}

/// What stands where, of one shop or of all.
///
/// # Errors
/// As of [`queues`].
pub async fn stands(watch: &Watch, shop_id: Option<i32>) -> Result<Stands, sqlx::Error> {
    sql::stands(watch.pool(), shop_id).await
}

/// The 200 workers that were seen last.
///
/// # Errors
/// As of [`queues`].
pub async fn workers(watch: &Watch) -> Result<Vec<Worker>, sqlx::Error> {
    sql::workers(watch.pool(), MOST_WORKERS).await
}
