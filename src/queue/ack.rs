//! Acknowledgements: how executions ended, written down many in one statement.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use apalis_core::error::BoxDynError;
use apalis_core::task::ExecutionContext;
use apalis_core::worker::ext::ack::Acknowledge;
use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::backoff::Backoff;
use super::execute::Failure;
use super::process::{Line, Process};
use super::sql::{self, Acknowledged, Endings};

const MOST_PER_STATEMENT: usize = 500;
/// The longest text that is kept of an error.
const LONGEST_TEXT: usize = 8 * 1_024;
/// The pause before a row that somebody else has locked is tried again.
const LOCKED_PAUSE: Duration = Duration::from_millis(50);

/// What tells one execution from any other, also of the same job: the fence of its acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    pub(super) id: String,
    pub(super) attempt: i32,
    pub(super) lock_at: DateTime<Utc>,
    pub(super) line: Arc<Line>,
}

/// Goes with a task through apalis: the execution, and its slot, which is free again when this is dropped.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) execution: Execution,
    pub(super) _slot: Arc<OwnedSemaphorePermit>,
}

/// An execution that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    execution: Execution,
    failure: Option<Failure>,
}

/// Takes the result of each task from apalis's worker.
#[derive(Clone, Debug)]
pub(super) struct Acknowledger {
    /// Bounded: while nothing can be written down, slots stay taken and nothing new is claimed.
    pub(super) ended: mpsc::Sender<Ended>,
}

impl Acknowledge<()> for Acknowledger {
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<(), Infallible>>;

    fn ack(&mut self, result: &Result<(), BoxDynError>, context: &ExecutionContext) -> Self::Future {
        let Some(claim) = context.data().get::<Claim>().cloned() else {
            tracing::error!(?context, "a task without a claim");
            return Box::pin(async { Ok(()) });
        };
        let failure = result.as_ref().err().map(|error| match error.downcast_ref::<Failure>() {
            Some(failure) => failure.clone(),
            None => Failure::Again { text: error.to_string(), wait: None },
        });
        let ended = self.ended.clone();
        Box::pin(async move {
            // Fails only when the process ends and has stopped writing.
            let _ = ended.send(Ended { execution: claim.execution.clone(), failure }).await;
            Ok(())
        })
    }
}

/// Writes down what ends until nobody can send any more. All that ended while one statement ran goes into
/// the next. What the database does not take is tried again for as long as it takes.
pub(super) async fn run(process: Arc<Process>, mut ended: mpsc::Receiver<Ended>) {
    let mut batch = Vec::new();
    let mut backoff = Backoff::default();
    loop {
        if batch.is_empty() && ended.recv_many(&mut batch, MOST_PER_STATEMENT).await == 0 {
            return;
        }
        while batch.len() < MOST_PER_STATEMENT
            && let Ok(one) = ended.try_recv()
        {
            batch.push(one);
        }
        let endings = endings(&batch);
        let base = process.settings.backoff_base.as_secs_f64();
        let cap = process.settings.backoff_cap.as_secs_f64();
        let answer =
            sql::with_limit(&process.pool, async |conn| sql::acknowledge(conn, &endings, base, cap).await).await;
        let pause = match answer {
            Ok(answers) => {
                backoff.reset();
                batch = settle(&process, batch, &answers);
                if batch.is_empty() { Duration::ZERO } else { LOCKED_PAUSE }
            }
            Err(error) => {
                tracing::warn!(%error, jobs = batch.len(), "results cannot be written down; trying again");
                backoff.next()
            }
        };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

fn endings(batch: &[Ended]) -> Endings {
    let mut endings = Endings::default();
    for Ended { execution, failure } in batch {
        endings.ids.push(execution.id.clone());
        endings.workers.push(execution.line.worker.clone());
        endings.attempts.push(execution.attempt);
        endings.locks.push(execution.lock_at);
        endings.errors.push(failure.as_ref().map(|f| kept_text(&f.to_string())));
        endings.dead.push(matches!(failure, Some(Failure::Dead { .. })));
        endings.waits.push(match failure {
            Some(Failure::Again { wait, .. }) => wait.map(|w| w.as_secs_f64()),
            Some(Failure::Dead { .. }) | None => None,
        });
    }
    endings
}

/// A text that the database takes: without U+0000, which jsonb refuses, and of bounded length.
fn kept_text(text: &str) -> String {
    let mut kept = text.replace('\0', "\u{fffd}");
    if kept.len() > LONGEST_TEXT {
        kept.truncate(kept.floor_char_boundary(LONGEST_TEXT));
        kept.push('…');
    }
    kept
}

/// Forgets what the database has taken, and gives what must be tried again.
fn settle(process: &Process, batch: Vec<Ended>, answers: &[Acknowledged]) -> Vec<Ended> {
    let mut answer_of: Vec<Option<&Acknowledged>> = vec![None; batch.len()];
    for answer in answers {
        let slot = usize::try_from(answer.position - 1).ok().and_then(|i| answer_of.get_mut(i));
        if let Some(slot) = slot {
            *slot = Some(answer);
        }
    }
    let mut locked = Vec::new();
    for (one, answer) in batch.into_iter().zip(answer_of) {
        let Ended { execution: Execution { id, attempt, line, lock_at }, failure } = &one;
        let queue = line.queue.name;
        let count = |result| metrics::counter!("onehold_jobs_total", "queue" => queue, "result" => result).increment(1);
        match answer.map(|a| (a.status.as_deref(), a.due_in)) {
            Some((None, _)) => {
                locked.push(one);
                continue;
            }
            None => tracing::warn!(id, queue, attempt, "a result came too late: the job has been taken over"),
            Some((Some("Killed"), _)) => {
                let error = failure.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::error!(id, queue, attempt, error, "dead letter");
                count("dead");
            }
            Some((Some(_), due_in)) => {
                count(if failure.is_some() { "retry" } else { "done" });
                if let Some(failure) = failure {
                    tracing::warn!(id, queue, attempt, error = %failure, due_in, "attempt failed");
                }
                wake_when_due(process, line, due_in);
            }
        }
        process.held.remove(id, *lock_at);
    }
    locked
}

/// A pause that ends before the next poll would end late without this.
fn wake_when_due(process: &Process, line: &Arc<Line>, due_in: Option<f64>) {
    let Some(pause) = due_in.and_then(|s| Duration::try_from_secs_f64(s.max(0.0)).ok()) else { return };
    if pause < process.settings.poll {
        let line = Arc::clone(line);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            line.wake.notify_one();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_TEXT, kept_text};

    #[test]
    fn texts_are_kept_without_nul_and_cut_between_characters() {
        assert_eq!(kept_text("a\0b"), "a\u{fffd}b");
        let long = kept_text(&"ä".repeat(LONGEST_TEXT));
        assert!(long.len() <= LONGEST_TEXT + '…'.len_utf8());
        assert!(long.ends_with("ä…"));
    }
}
