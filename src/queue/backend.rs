//! apalis's side of a queue: a [`Backend`] that hands claimed jobs to an apalis worker, and the layer that
//! takes their results back. What it hands out was claimed by [`super::fetch`] beside it, so that claiming,
//! heartbeats and acknowledgements never wait for each other or for a job.

use std::convert::Infallible;
use std::task::{Context, Poll};

use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::TaskId;
use apalis_core::worker::context::WorkerContext;
use apalis_core::worker::ext::ack::AcknowledgeLayer;
use tokio::sync::mpsc;

use super::ack::{Acknowledger, Claim};
use super::{Delivery, Settings};

/// The jobs of one queue that this process has claimed, in the order of claiming.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) incoming: mpsc::Receiver<Task<Delivery>>,
    pub(super) acknowledger: Acknowledger,
    pub(super) settings: Settings,
}

/// A claimed job in apalis's form.
pub(super) fn task(delivery: Delivery, claim: Claim) -> Task<Delivery> {
    TaskBuilder::new(delivery.clone())
        .task_id(TaskId::from_string(delivery.id))
        .queue(delivery.queue.into())
        // apalis counts the attempt when it begins to run it; the claim has counted it already.
        .attempt(usize::from(delivery.attempt - 1))
        .max_attempts(delivery.max_attempts.into())
        .lock_by(Some(claim.execution.line.worker.clone()))
        .data(claim)
        .build()
}

impl Backend for Claims {
    type Task = Task<Delivery>;
    // Nothing that goes wrong with the database ends an apalis worker: it is tried again where it happens.
    type Error = Infallible;

    fn poll_ready(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, _: &WorkerContext) -> Poll<Option<Result<Self::Task, Infallible>>> {
        self.incoming.poll_recv(cx).map(|task| task.map(Ok))
    }

    fn poll_close(&mut self, _: &mut Context<'_>, worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        // The fetcher has ended and every job has its result. A worker whose backend is exhausted goes on
        // for ever unless it is told to stop, which fails only where it has stopped already.
        let _ = worker.stop();
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for Claims {
    type Args = Delivery;
    type Id = String;
    type Kind = Ephemeral;
    type Config = Settings;
    type Layer = AcknowledgeLayer<Acknowledger>;

    fn config(&self) -> &Settings {
        &self.settings
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> Self::Layer {
        AcknowledgeLayer::new(self.acknowledger.clone())
    }
}
