//! Claiming: when to look into a queue, how far back, and how much to take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use apalis_core::task::Task;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::ack::{Claim, Execution};
use super::backoff::{Backoff, jittered};
use super::heartbeat::LOST_AFTER;
use super::process::{Line, Process};
use super::sql::{self, Claimed};
use super::{Delivery, backend};
use crate::db::Notice;

const MOST_PER_CLAIM: usize = 100;
/// How far behind the last look the next one begins: a job whose transaction took this long, from enqueuing
/// to commit, is still found by the ordinary look.
const MARGIN: Duration = Duration::from_secs(60);
/// How often, at most, a look goes back to the beginning. It costs as much as there are dead entries, which
/// a long-open transaction keeps; so it also takes at most a fiftieth of the time.
const FULL_LOOK_EVERY: Duration = Duration::from_secs(10);
const FULL_LOOK_SHARE: u32 = 50;
/// Further back than any job.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// Claims the jobs of one queue for this process.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) process: Arc<Process>,
    pub(super) line: Arc<Line>,
    pub(super) notices: broadcast::Receiver<Notice>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) claims: mpsc::Sender<Task<Delivery>>,
    pub(super) stop: CancellationToken,
}

impl Fetcher {
    /// Claims until told to stop. Survives whatever the database does.
    ///
    /// # Errors
    /// None but the end of the worker that should take the jobs, which is a fault of the program.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let stop = self.stop.clone();
        let (mut backoff, mut looked, mut more) = (Backoff::default(), Looked::default(), true);
        if stop.run_until_cancelled(self.process.registered.wait()).await.is_none() {
            return Ok(());
        }
        loop {
            let Some(first) = stop.run_until_cancelled(Arc::clone(&self.slots).acquire_owned()).await else {
                return Ok(());
            };
            let mut slots = vec![first.context("the slots are gone")?];
            if !more && stop.run_until_cancelled(self.reason_to_look()).await.is_none() {
                return Ok(());
            }
            if stop.is_cancelled() {
                return Ok(());
            }
            self.forget_notices();
            while slots.len() < MOST_PER_CLAIM
                && let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned()
            {
                slots.push(slot);
            }
            // Not cancelled by a stop: the answer names jobs that are ours.
            match self.look(slots, &mut looked).await? {
                Ok(full) => {
                    more = full;
                    backoff.reset();
                }
                Err(error) => {
                    self.process.held.claim_lost();
                    tracing::warn!(queue = self.line.queue.name, %error, "jobs cannot be claimed; trying again");
                    more = true;
                    if stop.run_until_cancelled(tokio::time::sleep(backoff.next())).await.is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Returns when there may be a job: somebody said so, or it is time to look by oneself.
    async fn reason_to_look(&mut self) {
        let poll = tokio::time::sleep(jittered(self.process.settings.poll));
        tokio::pin!(poll);
        loop {
            tokio::select! {
                () = self.line.wake.notified() => return,
                () = &mut poll => return,
                notice = self.notices.recv() => match notice {
                    Ok(Notice::Job(queue)) if queue == self.line.queue.name => return,
                    Ok(Notice::Job(_) | Notice::Decided(_)) => {}
                    Ok(Notice::Missed) | Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => return poll.await,
                },
            }
        }
    }

    /// What was said before a look is answered by that look.
    fn forget_notices(&mut self) {
        while let Ok(_) | Err(TryRecvError::Lagged(_)) = self.notices.try_recv() {}
    }

    /// One look, for as many jobs as there are slots. Gives whether there may be more.
    async fn look(
        &self,
        slots: Vec<OwnedSemaphorePermit>,
        looked: &mut Looked,
    ) -> anyhow::Result<Result<bool, sqlx::Error>> {
        let window = looked.window();
        let most = i64::try_from(slots.len()).unwrap_or(1);
        let (queue, worker) = (self.line.queue.name, self.line.worker.as_str());
        let answer = sql::with_limit(&self.process.pool, async |conn| {
            let started = Instant::now();
            let claimed = sql::claim(conn, queue, worker, most, window.as_secs_f64()).await?;
            // So late that the heartbeat may have handed these jobs back already: they are not ours to run.
            if started.elapsed() > LOST_AFTER / 2 && !claimed.is_empty() {
                return Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
            }
            Ok((started, claimed))
        })
        .await;
        let (started, claimed) = match answer {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let full = claimed.len() >= slots.len();
        looked.note(started, window, full.then(|| shortest_overdue(&claimed)));
        for (job, slot) in claimed.into_iter().zip(slots) {
            self.process.held.add(&job.id, job.lock_at);
            self.claims.send(self.task(job, slot)).await.context("the worker has ended")?;
        }
        Ok(Ok(full))
    }

    fn task(&self, job: Claimed, slot: OwnedSemaphorePermit) -> Task<Delivery> {
        let Claimed { id, payload, attempt, max_attempts, lock_at, overdue: _ } = job;
        let counted = |n: i32| u16::try_from(n.clamp(1, u16::MAX.into())).unwrap_or(u16::MAX);
        let delivery = Delivery {
            id: id.clone(),
            queue: self.line.queue.name,
            attempt: counted(attempt),
            max_attempts: counted(max_attempts),
            payload,
        };
        let execution = Execution { id, attempt, lock_at, line: Arc::clone(&self.line) };
        backend::task(delivery, Claim { execution, _slot: Arc::new(slot) })
    }
}

fn shortest_overdue(claimed: &[Claimed]) -> Duration {
    let seconds = claimed.iter().map(|job| job.overdue).fold(f64::INFINITY, f64::min);
    Duration::try_from_secs_f64(seconds).unwrap_or(FOR_EVER)
}

/// How far back there can still be jobs. Looking only there keeps a look cheap while dead entries of
/// finished jobs cannot be removed.
#[derive(Debug, Default)]
struct Looked {
    /// What was due before this has been seen; nothing where that is not known.
    from: Option<Instant>,
    next_full: Option<Instant>,
}

impl Looked {
    /// How long before now the next look begins.
    fn window(&self) -> Duration {
        match (self.from, self.next_full) {
            (Some(from), Some(next_full)) if Instant::now() < next_full => from.elapsed() + MARGIN,
            _ => FOR_EVER,
        }
    }

    /// After a look that began at `started` and went back by `window`: `youngest` is how long the youngest
    /// claimed job had been due where there may be more, and nothing where all that was there was claimed.
    fn note(&mut self, started: Instant, window: Duration, youngest: Option<Duration>) {
        self.from = started.checked_sub(youngest.unwrap_or_default());
        if window == FOR_EVER {
            let now = Instant::now();
            self.next_full = Some(now + FULL_LOOK_EVERY.max((now - started) * FULL_LOOK_SHARE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_goes_back_to_where_the_last_one_ended_and_to_the_beginning_now_and_then() {
        let mut looked = Looked::default();
        assert_eq!(looked.window(), FOR_EVER);
        let started = Instant::now();
        looked.note(started, FOR_EVER, Some(Duration::from_secs(300)));
        let window = looked.window();
        assert!(window >= Duration::from_secs(300) + MARGIN && window < Duration::from_secs(301) + MARGIN);
        looked.note(started, window, None);
        assert!(looked.window() < Duration::from_secs(1) + MARGIN);
        looked.next_full = Some(started);
        assert_eq!(looked.window(), FOR_EVER);
    }
}
