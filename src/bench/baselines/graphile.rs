//! The crate graphile_worker, set as quick as it goes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use graphile_worker::{IntoTaskHandlerResult, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::sql;
use crate::bench::Bench;
use crate::bench::queue::{AT_ONCE, Contender, Heard};

const CONNECTIONS: u32 = 10;
/// The lower end of what its documentation recommends.
const GATHER: Duration = Duration::from_millis(1);

#[derive(Serialize, Deserialize)]
struct Nothing {}

#[derive(Clone, Debug)]
struct Hears(Arc<Heard>);

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    /// Safe to repeat: it counts, and does nothing else.
    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(hears) = context.get_ext::<Hears>() {
            hears.0.job();
        }
        Ok::<(), String>(())
    }
}

pub(super) struct GraphileWorker {
    stop: CancellationToken,
    running: AbortOnDropHandle<anyhow::Result<()>>,
}

impl Contender for GraphileWorker {
    async fn start(bench: &Bench<'_>, heard: Arc<Heard>) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let pool =
            PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(bench.fleet.db.options().clone()).await?;
        let worker = WorkerOptions::default()
            .pg_pool(pool)
            .concurrency(AT_ONCE.into())
            .local_queue(LocalQueueConfig::default())
            .complete_job_batch_delay(GATHER)
            .listen_os_shutdown_signals(false)
            .shutdown_signal(stop.clone().cancelled_owned())
            .add_extension(Hears(heard))
            .define_job::<Nothing>()
            .init()
            .await?;
        let running = tokio::spawn(async move { worker.run().await.context("graphile_worker") });
        Ok(Self { stop, running: AbortOnDropHandle::new(running) })
    }

    async fn one(bench: &Bench<'_>) -> anyhow::Result<()> {
        Ok(sql::graphile_add(bench.fleet.db.pool(), 1).await?)
    }

    async fn many(bench: &Bench<'_>, jobs: i32) -> anyhow::Result<()> {
        Ok(sql::graphile_add(bench.fleet.db.pool(), jobs).await?)
    }

    async fn left(bench: &Bench<'_>) -> anyhow::Result<i64> {
        Ok(sql::graphile_left(bench.fleet.db.pool()).await?)
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.running.await?
    }
}
