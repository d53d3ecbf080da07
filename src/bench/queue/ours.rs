//! Our own queue, as a worker process runs it.

use std::sync::Arc;

use anyhow::Context as _;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{AT_ONCE, Contender, Heard, sql};
use crate::bench::Bench;
use crate::db::{Db, Notices};
use crate::queue::catalogue::{Job, Queue};
use crate::queue::{self, Handler, Settings, enqueue};

/// What a worker process has by default.
const CONNECTIONS: u32 = 10;

/// Does nothing. Not in the catalogue: it exists in throwaway databases only.
#[derive(Serialize)]
struct Nothing {
    v: u16,
}

impl Job for Nothing {
    const QUEUE: Queue = Queue { name: "bench", max_attempts: 5, concurrency: AT_ONCE };
}

pub(super) struct Ours {
    stop: CancellationToken,
    running: AbortOnDropHandle<anyhow::Result<()>>,
}

impl Contender for Ours {
    async fn start(bench: &Bench<'_>, heard: Arc<Heard>) -> anyhow::Result<Self> {
        let db = Db::connect_with(bench.fleet.db.options().clone(), CONNECTIONS).await?;
        let notices = Notices::start(&db);
        // Safe to repeat: it counts, and does nothing else.
        let handler: Handler = Arc::new(move |_| {
            heard.job();
            Box::pin(async { Ok(()) })
        });
        let stop = CancellationToken::new();
        let until = stop.clone();
        let running = tokio::spawn(async move {
            let queues = vec![(Nothing::QUEUE, Nothing::QUEUE.concurrency)];
            queue::run(db, &notices, queues, handler, Settings::default(), until).await
        });
        Ok(Self { stop, running: AbortOnDropHandle::new(running) })
    }

    async fn one(bench: &Bench<'_>) -> anyhow::Result<()> {
        let db = &bench.fleet.db;
        enqueue::job(db.pool(), &Uuid::now_v7().to_string(), &Nothing { v: 1 }).await?;
        db.notifier().job(Nothing::QUEUE.name);
        Ok(())
    }

    async fn many(bench: &Bench<'_>, jobs: i32) -> anyhow::Result<()> {
        sql::enqueue(bench.fleet.db.pool(), Nothing::QUEUE.name, jobs).await?;
        bench.fleet.db.notifier().job(Nothing::QUEUE.name);
        Ok(())
    }

    async fn left(bench: &Bench<'_>) -> anyhow::Result<i64> {
        Ok(sql::left(bench.fleet.db.pool(), Nothing::QUEUE.name).await?)
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.running.await.context("the worker")?
    }
}
