//! Heartbeats: this process says that it lives, and takes over the jobs of those that do not say so.
//! On a thread and a connection of their own, so that no handler, however it blocks, makes a living process
//! look dead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions as _, PgConnection};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::backoff::Backoff;
use super::process::{Process, options, queues_of};
use super::sql;

/// A job that the database says is ours, and that we do not know of after this time, was claimed by a
/// statement whose answer was lost.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(5);
/// Every so many beats lost claims are looked for, even if we know of none.
const LOOK_FOR_LOST_EVERY: u64 = 30;
const BATCH: i64 = 500;
const MOST_BATCHES: usize = 20;

/// A running heartbeat. It stops when this is dropped.
#[derive(Debug)]
pub(super) struct Heart {
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

impl Heart {
    /// Starts beating for `process`.
    ///
    /// # Errors
    /// A thread or runtime that cannot be made.
    pub(super) fn start(process: Arc<Process>) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let token = stop.clone();
        let (alive, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
            runtime.block_on(token.run_until_cancelled(live(&process)));
            drop(alive);
        })?;
        Ok(Self { stop: stop.drop_guard(), ended })
    }

    /// Returns when the heart has stopped by itself, which it never should.
    pub(super) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Stops beating, and returns when no beat is under way.
    pub(super) async fn stop(self) {
        let Self { stop, ended } = self;
        drop(stop);
        let _ = ended.await;
    }
}

async fn live(process: &Process) {
    let mut heart = Beats::new(process);
    let mut backoff = Backoff::default();
    loop {
        let pause = match heart.beat().await {
            Ok(()) => {
                backoff.reset();
                process.settings.heartbeat
            }
            Err(error) => {
                tracing::warn!(%error, "the heartbeat cannot be written down; trying again");
                heart.conn = None;
                backoff.next().min(process.settings.heartbeat)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

struct Beats<'a> {
    process: &'a Process,
    ids: Vec<String>,
    queues: Vec<String>,
    conn: Option<PgConnection>,
    count: u64,
    /// When it last beat, or began to try.
    last: Instant,
    /// Before this nobody is taken for dead.
    judge_from: Instant,
}

impl<'a> Beats<'a> {
    fn new(process: &'a Process) -> Self {
        let queues = process.lines.iter().map(|line| line.queue.name.to_owned()).collect();
        Self {
            process,
            ids: process.workers(),
            queues,
            conn: None,
            count: 0,
            last: Instant::now(),
            judge_from: Instant::now(),
        }
    }

    async fn beat(&mut self) -> Result<(), sqlx::Error> {
        let settings = &self.process.settings;
        let limit = settings.dead_after / 2;
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => within(limit, options(&self.process.db).connect()).await?,
        };
        within(limit, sql::beat(&mut conn, &self.ids, &self.queues)).await?;
        let now = Instant::now();
        // Whoever has missed a beat of his own does not know whether the others could beat in that time:
        // after the database was away, the first to come back must not take the second for dead.
        if now - self.last > settings.heartbeat * 2 {
            self.judge_from = now + settings.dead_after;
        }
        self.last = now;
        let _ = self.process.registered.set(());
        if now >= self.judge_from {
            recover(self.process, &mut conn, limit).await?;
        }
        self.take_back_lost_claims(&mut conn, limit).await?;
        self.count += 1;
        self.conn = Some(conn);
        Ok(())
    }

    async fn take_back_lost_claims(&self, conn: &mut PgConnection, limit: Duration) -> Result<(), sqlx::Error> {
        if !self.process.held.may_miss_some() && !self.count.is_multiple_of(LOOK_FOR_LOST_EVERY) {
            return Ok(());
        }
        let (ids, locks) = self.process.held.columns();
        let age = LOST_AFTER.as_secs_f64();
        let back = within(limit, sql::hand_back(conn, &self.ids, &ids, &locks, age, BATCH)).await?;
        if !back.is_empty() {
            tracing::warn!(jobs = back.len(), "claims whose answer was lost go back to their queues");
            queues_of(&back).for_each(|queue| self.process.db.notifier().job(queue));
        }
        Ok(())
    }
}

/// Gives the jobs of dead workers back to their queues.
async fn recover(process: &Process, conn: &mut PgConnection, limit: Duration) -> Result<(), sqlx::Error> {
    let dead_after = process.settings.dead_after.as_secs_f64();
    for _ in 0..MOST_BATCHES {
        let back = within(limit, sql::recover(&mut *conn, dead_after, BATCH)).await?;
        if !back.is_empty() {
            tracing::warn!(jobs = back.len(), "jobs of dead workers go back to their queues");
            queues_of(&back).for_each(|queue| process.db.notifier().job(queue));
        }
        if i64::try_from(back.len()).is_ok_and(|n| n < BATCH) {
            break;
        }
    }
    Ok(())
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let late = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}
