//! What happened minute by minute: counted once by the housekeeping, so that a dashboard reads a few hundred rows
//! and never the orders.

mod sql;

use chrono::{DateTime, Utc};

use super::Watch;
use crate::db::{Db, Fault};

/// How far back a run goes to make up for minutes that nobody counted.
const MOST_MINUTES: i64 = 60;

/// What happened in one stretch of time.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// When it began.
    pub from: DateTime<Utc>,
    /// The kind of the order's event; of a refusal `refused:KIND`.
    pub kind: String,
    /// How many.
    pub n: i64,
    /// Seconds from placing to this event: the middle one, and the slowest in a hundred. Of several minutes the
    /// greatest of theirs.
    pub p50: Option<f64>,
    /// See `p50`.
    pub p99: Option<f64>,
}

/// Counts the minutes that are over for half a minute and not counted yet, the last hour at most. A transaction ends
/// within ten seconds, so nothing that belongs to such a minute comes later. Gives how many rows that made.
///
/// Safe to repeat, also at once: a minute that is counted again comes to the same.
///
/// # Errors
/// Faults of the database; minutes that were counted stay so.
pub async fn count(db: &Db) -> Result<u64, Fault> {
    let mut rows = 0;
    for minute in sql::uncounted(db.pool(), MOST_MINUTES).await? {
        rows += sql::count(db.pool(), minute).await?;
    }
    sql::forget(db.pool()).await?;
    Ok(rows)
}

/// The shop's last hour by minutes, oldest first.
///
/// # Errors
/// What the database answers; it works for at most two seconds.
pub async fn last_hour(watch: &Watch, shop_id: i32) -> Result<Vec<Stretch>, sqlx::Error> {
    sql::stretches(watch.pool(), shop_id, 60.0, 3_600.0).await
}

/// The shop's last day by quarters of an hour, oldest first.
///
/// # Errors
/// As of [`last_hour`].
pub async fn last_day(watch: &Watch, shop_id: i32) -> Result<Vec<Stretch>, sqlx::Error> {
    sql::stretches(watch.pool(), shop_id, 900.0, 86_400.0).await
}
