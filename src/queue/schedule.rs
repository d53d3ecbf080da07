//! The scheduler: each minute the housekeeping is put into its queue, by apalis-cron. Any number of
//! schedulers may run: a tick's key is the same in each, and the queue takes one key once. A tick carries no
//! work of its own; the housekeeping works from what it finds, so that a missed tick is made up by the next.

use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_cron::{CronScheduler, Tick};
use chrono::{DateTime, SecondsFormat, Timelike as _, Utc};
use cron::Schedule;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::catalogue::{HOUSEKEEPING, Housekeeping, NEWEST_VERSION, Task};
use super::enqueue;
use crate::db::Db;

/// At the full minute: seconds, minutes, hours, day, month, weekday.
pub const MINUTELY: &str = "0 * * * * *";
/// A tick that cannot be enqueued for this long is given up: the next one is due.
const LONGEST_TRY: Duration = Duration::from_secs(50);
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Enqueues the housekeeping at each tick of `every` (in cron's form, with seconds), and once at the start,
/// until `shutdown` is cancelled. A tick that comes late, which ends an apalis worker, starts a new one.
///
/// # Errors
/// A schedule that does not parse. Nothing else: a database that is away costs ticks.
pub async fn run(db: Db, every: &str, shutdown: CancellationToken) -> anyhow::Result<()> {
    let schedule = Schedule::from_str(every).with_context(|| format!("schedule {every:?}"))?;
    let mut number = 0_u64;
    loop {
        // Once for all ticks that nobody was there for, and the same whoever comes first in this minute.
        let now = Utc::now();
        let minute = now.with_second(0).unwrap_or(now);
        if shutdown.run_until_cancelled(try_tick(&db, minute)).await.is_none() {
            return Ok(());
        }
        number += 1;
        let ticking = db.clone();
        let worker = WorkerBuilder::new(format!("scheduler-{number}"))
            .backend(CronScheduler::new(schedule.clone()))
            .build(move |tick: Tick<Utc>| {
                let db = ticking.clone();
                async move {
                    if let Some(at) =
                        i64::try_from(tick.get_timestamp()).ok().and_then(|s| DateTime::from_timestamp(s, 0))
                    {
                        try_tick(&db, at).await;
                    }
                }
            });
        let Some(ended) = shutdown.run_until_cancelled(worker.run()).await else {
            return Ok(());
        };
        tracing::warn!(?ended, "the scheduler's worker has ended; starting another");
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// Enqueues the housekeeping of the tick `at`. Gives how many of its jobs were not there yet.
///
/// # Errors
/// What the database answers.
pub async fn tick(db: &Db, at: DateTime<Utc>) -> Result<usize, sqlx::Error> {
    let mut put = 0;
    for task in Task::ALL {
        let key = format!("{}:{}", task.name(), at.to_rfc3339_opts(SecondsFormat::Secs, true));
        put += usize::from(enqueue::once(db.pool(), &key, &Housekeeping { v: NEWEST_VERSION, task }).await?);
    }
    if put > 0 {
        db.notifier().job(HOUSEKEEPING.name);
    }
    Ok(put)
}

async fn try_tick(db: &Db, at: DateTime<Utc>) {
    let mut backoff = Backoff::default();
    let trying = async {
        while let Err(error) = tick(db, at).await {
            tracing::warn!(%error, %at, "the housekeeping cannot be enqueued; trying again");
            tokio::time::sleep(backoff.next()).await;
        }
    };
    if tokio::time::timeout(LONGEST_TRY, trying).await.is_err() {
        tracing::warn!(%at, "a tick was given up; the next one does its work");
    }
}
