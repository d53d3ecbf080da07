//! One worker process: its parts put together, and ended in order.

use std::sync::Arc;

use anyhow::Context as _;
use apalis::prelude::WorkerBuilder;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::ack::{self, Acknowledger};
use super::backend::Claims;
use super::backoff::Backoff;
use super::catalogue::Queue;
use super::execute::Executor;
use super::fetch::Fetcher;
use super::heartbeat::Heart;
use super::process::{Process, queues_of};
use super::{Handler, Settings, sql};
use crate::db::{Db, Notices};

/// How many ended executions may wait to be written down before their slots stay taken.
const MOST_UNACKNOWLEDGED: usize = 1_000;
const BATCH: i64 = 1_000;
const MOST_BATCHES: usize = 100;

type Parts = JoinSet<anyhow::Result<()>>;

/// Works on `queues` with `handler`, each with at most so many jobs at once, until `shutdown` is cancelled
/// and what runs has ended: jobs may go on for [`Settings::grace`], then they go back to their queues
/// without being charged for the attempt. Survives an absent database for as long as it is absent. Must run
/// on a Tokio runtime; dropping the future stops everything without order, as a crash would.
///
/// # Errors
/// A thread that cannot be made; jobs that could not be handed back in [`Settings::closing`] (others take
/// them over when this process is taken for dead); a fault of the program, after an orderly end.
pub async fn run(
    db: Db,
    notices: &Notices,
    queues: Vec<(Queue, u16)>,
    handler: Handler,
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let names: Vec<Queue> = queues.iter().map(|(queue, _)| *queue).collect();
    let process = Arc::new(Process::new(db, &names, settings));
    let stop = shutdown.child_token();
    let (ended, endings) = mpsc::channel(MOST_UNACKNOWLEDGED);
    let acknowledger = Acknowledger { ended };
    let (mut fetchers, mut workers) = (Parts::new(), Parts::new());
    for (line, (_, concurrency)) in process.lines.iter().zip(&queues) {
        let concurrency = usize::from(*concurrency).max(1);
        let (claims, incoming) = mpsc::channel(concurrency);
        let fetcher = Fetcher {
            process: Arc::clone(&process),
            line: Arc::clone(line),
            notices: notices.subscribe(),
            slots: Arc::new(Semaphore::new(concurrency)),
            claims,
            stop: stop.clone(),
        };
        fetchers.spawn(fetcher.run());
        let backend = Claims { incoming, acknowledger: acknowledger.clone(), settings };
        let executor = Executor { handler: Arc::clone(&handler), limit: settings.longest_run };
        let worker = WorkerBuilder::new(line.worker.as_str()).backend(backend).build(executor);
        workers.spawn(async move { worker.run().await.context("apalis worker") });
    }
    drop(acknowledger);
    let acks = AbortOnDropHandle::new(tokio::spawn(ack::run(Arc::clone(&process), endings)));
    let mut heart = Heart::start(Arc::clone(&process))?;

    let fault = tokio::select! {
        // Asked to stop, the parts end too, and that is no fault.
        biased;
        () = shutdown.cancelled() => Ok(()),
        part = fetchers.join_next(), if !fetchers.is_empty() => Err(too_early(part)),
        part = workers.join_next(), if !workers.is_empty() => Err(too_early(part)),
        () = heart.ended() => Err(anyhow::anyhow!("the heartbeat has ended")),
    };
    stop.cancel();
    if tokio::time::timeout(settings.grace, drain(&mut workers)).await.is_err() {
        workers.abort_all();
    }
    let closing = close(&process, fetchers, workers, acks, heart);
    let closed = tokio::time::timeout(settings.closing, closing).await;
    fault?;
    closed.context("the database did not take the jobs back in time; others will take them over")?
}

fn too_early(part: Option<Result<anyhow::Result<()>, JoinError>>) -> anyhow::Error {
    match part {
        Some(Ok(Err(error))) => error,
        Some(Err(join)) => join.into(),
        Some(Ok(Ok(()))) | None => anyhow::anyhow!("a part of the queue has ended by itself"),
    }
}

async fn drain(parts: &mut Parts) {
    while let Some(part) = parts.join_next().await {
        let unfinished = part.as_ref().is_err_and(JoinError::is_cancelled);
        if !unfinished && !matches!(part, Ok(Ok(()))) {
            tracing::error!(error = %too_early(Some(part)), "a part of the queue broke while it ended");
        }
    }
}

/// Writes down what has ended, hands back the rest, and leaves.
async fn close(
    process: &Process,
    mut fetchers: Parts,
    mut workers: Parts,
    acks: AbortOnDropHandle<()>,
    heart: Heart,
) -> anyhow::Result<()> {
    // A claim that is still on its way must have come before all that is ours is handed back.
    drain(&mut fetchers).await;
    drain(&mut workers).await;
    acks.await.context("acknowledgements")?;
    heart.stop().await;
    let mut backoff = Backoff::default();
    while let Err(error) = leave(process).await {
        tracing::warn!(%error, "jobs cannot be handed back; trying again");
        tokio::time::sleep(backoff.next()).await;
    }
    process.pool.close().await;
    Ok(())
}

async fn leave(process: &Process) -> Result<(), sqlx::Error> {
    let workers = process.workers();
    for _ in 0..MOST_BATCHES {
        let back = sql::hand_back(&process.pool, &workers, &[], &[], 0.0, BATCH).await?;
        queues_of(&back).for_each(|queue| process.db.notifier().job(queue));
        if i64::try_from(back.len()).is_ok_and(|n| n < BATCH) {
            break;
        }
    }
    sql::leave(&process.pool, &workers).await
}
