//! Jobs as operators see them: what failed and why, and one job with its payload.

mod sql;

use chrono::{DateTime, Utc};

use super::{Watch, redact};

/// How many failures of a queue are looked at.
pub const MOST_LOOKED_AT: i64 = 1_000;
const MOST_LISTED: i64 = 50;

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Its queue.
    pub queue: String,
    /// apalis's word: Pending, Queued, Running, Done, Failed (to be tried again), Killed (a dead letter).
    pub status: String,
    /// How often it was begun.
    pub attempts: i32,
    /// How often it may be.
    pub max_attempts: i32,
    /// When it is or was due.
    pub run_at: DateTime<Utc>,
    /// When it ended.
    pub done_at: Option<DateTime<Utc>>,
    /// Why its last attempt failed.
    pub error: Option<String>,
    /// Who has or had it in hand.
    pub worker: Option<String>,
    /// What was enqueued, without what could be a secret.
    pub payload: String,
}

/// A job as it stands in the database.
pub(super) struct JobRow {
    pub(super) id: String,
    pub(super) queue: String,
    pub(super) status: String,
    pub(super) attempts: i32,
    pub(super) max_attempts: i32,
    pub(super) run_at: DateTime<Utc>,
    pub(super) done_at: Option<DateTime<Utc>>,
    pub(super) error: Option<String>,
    pub(super) worker: Option<String>,
    pub(super) payload: Vec<u8>,
}

pub(super) fn shown(row: JobRow) -> Job {
    Job {
        payload: redact::shown(&row.payload),
        id: row.id,
        queue: row.queue,
        status: row.status,
        attempts: row.attempts,
        max_attempts: row.max_attempts,
        run_at: row.run_at,
        done_at: row.done_at,
        error: row.error,
        worker: row.worker,
    }
}

/// Failures of one queue with one text.
#[derive(Clone, Debug)]
pub struct Failures {
    /// The queue.
    pub queue: String,
    /// The text, without what differs from job to job: ids and numbers.
    pub error: String,
    /// How many are dead letters.
    pub dead: i64,
    /// How many will be tried again.
    pub again: i64,
    /// When the last of them is or was due.
    pub last: DateTime<Utc>,
}

/// What failed, grouped by queue and text; of each queue the last [`MOST_LOOKED_AT`] dead letters and as many of
/// those that will be tried again.
///
/// # Errors
/// What the database answers; it works for at most two seconds.
pub async fn failures(watch: &Watch) -> Result<Vec<Failures>, sqlx::Error> {
    let queues: Vec<String> = crate::queue::catalogue::ALL.iter().map(|queue| queue.name.to_owned()).collect();
    sql::failures(watch.pool(), &queues, MOST_LOOKED_AT).await
}

/// The last fifty dead letters of a queue.
///
/// # Errors
/// As of [`failures`].
pub async fn dead(watch: &Watch, queue: &str) -> Result<Vec<Job>, sqlx::Error> {
    Ok(sql::dead(watch.pool(), queue, MOST_LISTED).await?.into_iter().map(shown).collect())
}

/// One job.
///
/// # Errors
/// As of [`failures`].
pub async fn find(watch: &Watch, id: &str) -> Result<Option<Job>, sqlx::Error> {
    if id.contains('\0') {
        return Ok(None);
    }
    Ok(sql::find(watch.pool(), id).await?.map(shown))
}
