//! apalis-postgres as it comes.

use std::sync::Arc;

use apalis::prelude::WorkerBuilder;
use apalis_postgres::PostgresStorage;
use sqlx::postgres::PgPoolOptions;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::sql;
use crate::bench::Bench;
use crate::bench::queue::{self, Contender, Heard};

const CONNECTIONS: u32 = 10;

pub(super) struct Apalis {
    running: AbortOnDropHandle<()>,
}

/// What its queue is called by default: the type of its jobs.
fn queue_name() -> &'static str {
    std::any::type_name::<u64>()
}

impl Contender for Apalis {
    /// None: by default an idle worker looks again after half a minute.
    const ALONE: usize = 0;
    const JOBS: usize = queue::JOBS / 4;

    async fn start(bench: &Bench<'_>, heard: Arc<Heard>) -> anyhow::Result<Self> {
        let pool =
            PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(bench.fleet.db.options().clone()).await?;
        let backend = PostgresStorage::<u64>::new(&pool);
        // Safe to repeat: it counts, and does nothing else.
        let handler = move |_: u64| {
            heard.job();
            async { Ok::<(), std::io::Error>(()) }
        };
        let worker = WorkerBuilder::new(format!("bench-{}", Uuid::now_v7())).backend(backend).build(handler);
        let running = tokio::spawn(async move {
            if let Err(error) = worker.run().await {
                tracing::warn!(%error, "the worker of apalis has ended");
            }
        });
        Ok(Self { running: AbortOnDropHandle::new(running) })
    }

    async fn one(bench: &Bench<'_>) -> anyhow::Result<()> {
        Ok(sql::apalis_add(bench.fleet.db.pool(), queue_name(), 1).await?)
    }

    async fn many(bench: &Bench<'_>, jobs: i32) -> anyhow::Result<()> {
        Ok(sql::apalis_add(bench.fleet.db.pool(), queue_name(), jobs).await?)
    }

    async fn left(bench: &Bench<'_>) -> anyhow::Result<i64> {
        Ok(queue::sql::left(bench.fleet.db.pool(), queue_name()).await?)
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.running.abort();
        Ok(())
    }
}
