//! The scheduler: each minute the housekeeping is put into its queue, by apalis-cron. Any number of
//! schedulers may run: a tick's key is the same in each, and the queue takes one key once. A tick carries no
//! work of its own; the housekeeping works from what it finds, so that a missed tick is made up by the next.

use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use apalis::prelude::WorkerBuilder;
use apalis_cron::{CronScheduler, Tick};
use chrono::{DateTime, SecondsFormat, Timelike as _, Utc};
use cron::Schedule;
use futures_util::future::BoxFuture;
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
    let ticking = || -> BoxFuture<'static, ()> {
        let (db, schedule) = (db.clone(), schedule.clone());
        Box::pin(async move {
            // Once for all ticks that nobody was there for, and the same whoever comes first in this minute.
            let now = Utc::now();
            try_tick(&db, now.with_second(0).unwrap_or(now)).await;
            let worker =
                WorkerBuilder::new("scheduler").backend(CronScheduler::new(schedule)).build(move |tick: Tick<Utc>| {
                    let db = db.clone();
                    async move {
                        let seconds = i64::try_from(tick.get_timestamp()).ok();
                        if let Some(at) = seconds.and_then(|s| DateTime::from_timestamp(s, 0)) {
                            try_tick(&db, at).await;
                        }
                    }
                });
            let ended = worker.run().await;
            tracing::warn!(?ended, "the scheduler's worker has ended; starting another");
        })
    };
    shutdown.run_until_cancelled(again_and_again(ticking)).await;
    Ok(())
}

/// Runs what should never end, again whenever it does.
async fn again_and_again(run: impl Fn() -> BoxFuture<'static, ()>) {
    loop {
        run().await;
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_scheduler_that_ends_is_started_again() {
        static STARTS: AtomicU32 = AtomicU32::new(0);
        let (third, mut reached) = tokio::sync::mpsc::unbounded_channel();
        let running = tokio::spawn(super::again_and_again(move || {
            let third = third.clone();
            Box::pin(async move {
                if STARTS.fetch_add(1, Ordering::Relaxed) == 2 {
                    third.send(()).unwrap();
                }
            })
        }));
        assert!(tokio::time::timeout(super::RESTART_PAUSE * 30, reached.recv()).await.is_ok());
        running.abort();
    }
}
