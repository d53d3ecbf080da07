//! Jobs that do nothing: how many a second, and how long one waits that comes alone. Every queue gets a worker that
//! is idle when the jobs come, and the clock runs from their commit until the last is written down as done.

mod ours;
pub(super) mod sql;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::sync::{Mutex, mpsc};

use super::drive::{Round, Tally};
use super::sql as common;
use super::{Bench, Ratio, Scenario};

pub(super) const JOBS: usize = 10_000;
/// How many come alone, one after the other, in each round.
const ALONE: usize = 100;
/// How many jobs one worker runs at once, where it can be told.
pub(super) const AT_ONCE: u16 = 64;
/// How long jobs may take in all, and one that comes alone.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A queue with a worker that does nothing.
pub(super) trait Contender: Sized {
    /// Starts the worker on an empty queue; each job it runs tells `heard`.
    async fn start(bench: &Bench<'_>, heard: Arc<Heard>) -> anyhow::Result<Self>;
    /// Enqueues one job, durably.
    async fn one(&self, bench: &Bench<'_>) -> anyhow::Result<()>;
    /// Enqueues so many jobs at once, by the quickest way there is.
    async fn many(&self, bench: &Bench<'_>, jobs: i32) -> anyhow::Result<()>;
    /// How many jobs are not written down as done.
    async fn left(&self, bench: &Bench<'_>) -> anyhow::Result<i64>;
    /// Ends the worker.
    async fn stop(self) -> anyhow::Result<()>;
}

/// Hears jobs run.
pub(super) struct Heard {
    ran: AtomicUsize,
    tell: mpsc::UnboundedSender<Instant>,
    told: Mutex<mpsc::UnboundedReceiver<Instant>>,
}

impl Heard {
    fn new() -> Arc<Self> {
        let (tell, told) = mpsc::unbounded_channel();
        Arc::new(Self { ran: AtomicUsize::new(0), tell, told: told.into() })
    }

    /// A job runs.
    pub(super) fn job(&self) {
        self.ran.fetch_add(1, Ordering::Relaxed);
        // Nobody listens any more at the end of a round.
        let _ = self.tell.send(Instant::now());
    }

    /// When the next job began that nobody asked for yet.
    async fn next(&self) -> anyhow::Result<Instant> {
        let mut told = self.told.lock().await;
        tokio::time::timeout(PATIENCE, told.recv()).await.context("a job did not begin in time")?.context("nobody runs")
    }
}

/// What one queue did: jobs a second, and how long those that came alone waited.
pub(super) async fn play<C: Contender>(bench: &Bench<'_>, jobs: i32) -> anyhow::Result<Round> {
    common::checkpoint(bench.fleet.db.pool()).await?;
    let heard = Heard::new();
    let worker = C::start(bench, Arc::clone(&heard)).await?;
    let mut waits = Vec::new();
    for _ in 0..=usize::try_from(bench.effort.size(ALONE, 5))? {
        worker.one(bench).await?;
        let enqueued = Instant::now();
        // A job may begin before its enqueuer hears of the commit.
        waits.push(heard.next().await?.saturating_duration_since(enqueued));
    }
    // The first one found a worker that was still starting.
    waits.remove(0);
    until_done(bench, &worker).await?;
    let before = heard.ran.load(Ordering::Relaxed);
    worker.many(bench, jobs).await?;
    let began = Instant::now();
    let wanted = usize::try_from(jobs)?;
    while heard.ran.load(Ordering::Relaxed) - before < wanted {
        heard.next().await?;
    }
    until_done(bench, &worker).await?;
    let window = began.elapsed();
    worker.stop().await?;
    let ran = heard.ran.load(Ordering::Relaxed) - before;
    ensure!(ran == wanted, "{wanted} jobs were enqueued, and {ran} ran");
    Ok(Round { window, counted: wanted, done: wanted, times: waits })
}

async fn until_done<C: Contender>(bench: &Bench<'_>, worker: &C) -> anyhow::Result<()> {
    let began = Instant::now();
    while worker.left(bench).await? > 0 {
        ensure!(began.elapsed() < PATIENCE, "jobs are not written down as done in time");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let jobs = bench.effort.size(JOBS, 500);
    sql::prepare(bench.fleet.db.pool()).await?;
    common::prepare_commits(bench.fleet.db.pool()).await?;
    let (mut ours, mut commits) = (Tally::default(), Vec::new());
    for round in 1..=bench.effort.rounds {
        bench.say(&format!("round {round} of {}: ours, {jobs} jobs", bench.effort.rounds));
        ours.rounds.push(play::<ours::Ours>(bench, jobs).await?);
        for _ in 0..ALONE {
            let began = Instant::now();
            common::bare_commit(bench.fleet.db.pool()).await?;
            commits.push(began.elapsed());
        }
    }
    let waits = ours.rounds.iter().flat_map(|round| round.times.clone()).collect();
    Ok(vec![Ratio::of_times(Scenario::Queue, "enqueue to start, in bare commits", waits, commits)])
}
