//! Removing what has ended.

use std::time::Duration;

use super::process::queues_of;
use super::sql;
use crate::db::{Db, Fault};

/// Done jobs are kept for an hour, for operators who look at what just happened. What a job did is told by
/// the order's events for ever.
const DONE_KEPT: Duration = Duration::from_secs(3_600);
/// Dead letters are kept for two weeks: a person must have the time to see them.
const KILLED_KEPT: Duration = Duration::from_secs(14 * 24 * 3_600);
/// A worker that was not seen for so long is forgotten, once it holds no jobs. Much longer than a worker
/// is taken for dead, because a claim that was on its way may still land.
const WORKERS_KEPT: Duration = Duration::from_secs(600);
/// A job in hand of no known worker is given back when it is older than this.
const ORPHANS_AFTER: Duration = Duration::from_secs(15);
const BATCH: i64 = 1_000;
/// A bound for the loop; what is left waits for the next minute.
const MOST_BATCHES: usize = 10_000;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Jobs that were done.
    pub done: i64,
    /// Dead letters.
    pub killed: i64,
    /// Workers that are gone.
    pub workers: u64,
    /// Jobs in hand of nobody, given back to their queues: not removed.
    pub orphans: usize,
}

/// Removes ended jobs that are old enough, in small batches until none is left, and gone workers; gives
/// back jobs in hand of workers that nobody knows. Safe to repeat, and to run several times at once.
///
/// # Errors
/// What the database answers; what was removed until then stays removed.
pub async fn prune(db: &Db) -> Result<Pruned, Fault> {
    let orphans = orphans(db).await?;
    Ok(Pruned {
        done: jobs(db, "Done", DONE_KEPT).await?,
        killed: jobs(db, "Killed", KILLED_KEPT).await?,
        workers: sql::prune_workers(db.pool(), WORKERS_KEPT.as_secs_f64()).await?,
        orphans,
    })
}

async fn jobs(db: &Db, status: &str, kept: Duration) -> Result<i64, Fault> {
    let (mut removed, mut from) = (0, None);
    for _ in 0..MOST_BATCHES {
        // Each batch begins where the last one ended, not at the dead entries that it left behind.
        let batch = sql::prune_jobs(db.pool(), status, kept.as_secs_f64(), from, BATCH).await?;
        removed += batch.jobs;
        if batch.jobs < BATCH {
            break;
        }
        from = batch.up_to;
    }
    Ok(removed)
}

async fn orphans(db: &Db) -> Result<usize, Fault> {
    let mut given_back = 0;
    for _ in 0..MOST_BATCHES {
        let batch = sql::recover_orphans(db.pool(), ORPHANS_AFTER.as_secs_f64(), BATCH).await?;
        queues_of(&batch).for_each(|queue| db.notifier().job(queue));
        given_back += batch.len();
        if !batch.is_empty() {
            tracing::warn!(jobs = batch.len(), "jobs of unknown workers go back to their queues");
        }
        if i64::try_from(batch.len()).is_ok_and(|n| n < BATCH) {
            break;
        }
    }
    Ok(given_back)
}
