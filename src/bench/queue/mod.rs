//! Jobs that do nothing: how many a second, and how long one waits that comes alone. Every queue gets a worker that
//! is idle when the jobs come, and the clock runs from the first one's beginning until the last is written down as
//! done.

mod ours;
pub(super) mod sql;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::sync::{Mutex, mpsc};

use super::baselines::{self, Rival};
use super::drive::{Round, Tally};
use super::sql as common;
use super::{Bench, Ratio, Scenario};

/// How many jobs come at once in each round.
pub(super) const JOBS: usize = 10_000;
/// How many jobs one worker runs at once, where it can be told.
pub(super) const AT_ONCE: u16 = 64;
/// How long jobs may take in all, and one that comes alone.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A queue with a worker that does nothing.
pub(super) trait Contender: Sized {
    /// How many jobs come at once in each round.
    const JOBS: usize = JOBS;
    /// How many come alone, one after the other, before; none where the worker is to find all others at its start.
    const ALONE: usize = 100;

    /// Starts the worker; each job it runs tells `heard`.
    async fn start(bench: &Bench<'_>, heard: Arc<Heard>) -> anyhow::Result<Self>;
    /// Enqueues one job, durably.
    async fn one(bench: &Bench<'_>) -> anyhow::Result<()>;
    /// Enqueues so many jobs at once, by the quickest way there is.
    async fn many(bench: &Bench<'_>, jobs: i32) -> anyhow::Result<()>;
    /// How many jobs are not written down as done.
    async fn left(bench: &Bench<'_>) -> anyhow::Result<i64>;
    /// Ends the worker.
    async fn stop(self) -> anyhow::Result<()>;
}

/// Hears jobs run.
#[derive(Debug)]
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
pub(super) async fn play<C: Contender>(bench: &Bench<'_>) -> anyhow::Result<Round> {
    let jobs = bench.effort.size(C::JOBS, 100);
    common::checkpoint(bench.fleet.db.pool()).await?;
    let heard = Heard::new();
    if C::ALONE == 0 {
        C::many(bench, jobs).await?;
    }
    let worker = C::start(bench, Arc::clone(&heard)).await?;
    let waits = waits::<C>(bench, &heard).await?;
    let before = heard.ran.load(Ordering::Relaxed);
    if C::ALONE > 0 {
        C::many(bench, jobs).await?;
    }
    let wanted = usize::try_from(jobs)?;
    let began = heard.next().await?;
    while heard.ran.load(Ordering::Relaxed) - before < wanted {
        heard.next().await?;
    }
    until_done::<C>(bench).await?;
    let window = began.elapsed();
    worker.stop().await?;
    let ran = heard.ran.load(Ordering::Relaxed) - before;
    ensure!(ran == wanted, "{wanted} jobs were enqueued, and {ran} ran");
    Ok(Round { window, counted: wanted, done: wanted, times: waits })
}

/// How long each of those that come alone waits, after one that finds a worker which is still starting.
async fn waits<C: Contender>(bench: &Bench<'_>, heard: &Heard) -> anyhow::Result<Vec<Duration>> {
    let mut waits = Vec::new();
    if C::ALONE == 0 {
        return Ok(waits);
    }
    for _ in 0..=bench.effort.size(C::ALONE, 2) {
        C::one(bench).await?;
        let enqueued = Instant::now();
        // A job may begin before its enqueuer hears of the commit.
        waits.push(heard.next().await?.saturating_duration_since(enqueued));
    }
    waits.remove(0);
    until_done::<C>(bench).await?;
    Ok(waits)
}

async fn until_done<C: Contender>(bench: &Bench<'_>) -> anyhow::Result<()> {
    let began = Instant::now();
    while C::left(bench).await? > 0 {
        ensure!(began.elapsed() < PATIENCE, "jobs are not written down as done in time");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    sql::prepare(bench.fleet.db.pool()).await?;
    common::prepare_commits(bench.fleet.db.pool()).await?;
    let (mut ours, mut commits) = (Tally::default(), Vec::new());
    let mut rivals = Rival::ALL.map(|rival| (rival, Tally::default()));
    for round in 1..=bench.effort.rounds {
        bench.say(&format!("round {round} of {}: ours", bench.effort.rounds));
        ours.rounds.push(play::<ours::Ours>(bench).await?);
        for _ in 0..ours::Ours::ALONE {
            let began = Instant::now();
            common::bare_commit(bench.fleet.db.pool()).await?;
            commits.push(began.elapsed());
        }
        for (rival, tally) in &mut rivals {
            // What is missing in the first round is missing in all.
            if round > 1 && tally.rounds.is_empty() {
                continue;
            }
            bench.say(&format!("round {round} of {}: {rival:?}", bench.effort.rounds));
            let played = baselines::play(bench, *rival).await.with_context(|| format!("{rival:?}"))?;
            tally.rounds.extend(played);
        }
    }
    let mut ratios = Vec::new();
    for (rival, tally) in rivals.iter().filter(|(_, tally)| !tally.rounds.is_empty()) {
        ratios.push(Ratio::of_rates(Scenario::Queue, rival.ratio(), &ours, tally));
    }
    let waits = ours.rounds.iter().flat_map(|round| round.times.clone()).collect();
    ratios.push(Ratio::of_times(Scenario::Queue, "enqueue to start, in bare commits", waits, commits));
    Ok(ratios)
}
