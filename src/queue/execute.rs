//! One execution of a job: apart from the loop, so that a panic, a hang or a blocked thread is this job's
//! trouble alone.

use std::any::Any;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apalis_core::task::Task;
use futures_util::future::BoxFuture;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::{Delivery, Handler, JobError};

/// Why an execution did not end well, in a form that can be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// To be tried again: after this time, or after the usual backoff.
    #[error("{text}")]
    Again { text: String, wait: Option<Duration> },
    /// Not to be tried again.
    #[error("{text}")]
    Dead { text: String },
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Retry(e) => Self::Again { text: format!("{e:#}"), wait: None },
            JobError::RetryAfter(wait, e) => Self::Again { text: format!("{e:#}"), wait: Some(wait) },
            JobError::Dead(e) => Self::Dead { text: format!("{e:#}") },
        }
    }
}

/// The service at the bottom of apalis's worker: runs each task.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) handler: Handler,
    /// How long one execution may take.
    pub(super) limit: Duration,
}

impl tower::Service<Task<Delivery>> for Executor {
    type Response = ();
    type Error = Failure;
    type Future = BoxFuture<'static, Result<(), Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task<Delivery>) -> Self::Future {
        Box::pin(execute(self.handler.clone(), task.args, self.limit))
    }
}

/// Runs `delivery` for at most `limit`. Dropping the future ends it, as far as it lets itself be ended.
async fn execute(handler: Handler, delivery: Delivery, limit: Duration) -> Result<(), Failure> {
    let (queue, began) = (delivery.queue, Instant::now());
    let ended = watched(handler, delivery, limit).await;
    metrics::histogram!("onehold_job_seconds", "queue" => queue).record(began.elapsed());
    ended
}

async fn watched(handler: Handler, delivery: Delivery, limit: Duration) -> Result<(), Failure> {
    let span = tracing::info_span!("job", queue = delivery.queue, id = delivery.id, attempt = delivery.attempt);
    // A task of its own: a panic ends it and nothing else, and a handler that blocks holds up one thread.
    let running = tokio::spawn(async move { handler(delivery).await }.instrument(span));
    let mut running = AbortOnDropHandle::new(running);
    match tokio::time::timeout(limit, &mut running).await {
        Ok(Ok(result)) => result.map_err(Failure::from),
        Ok(Err(join)) => {
            let text =
                join.try_into_panic().map_or_else(|e| e.to_string(), |p| format!("panicked: {}", panic_text(&*p)));
            Err(Failure::Again { text, wait: None })
        }
        Err(_) => Err(Failure::Again { text: format!("took longer than {} s", limit.as_secs_f64()), wait: None }),
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}
