//! The worker process.

use anyhow::bail;
use clap::Args;
use onehold::config::{Database, Ending, Watching, Work};
use onehold::courier;
use onehold::db::{Db, Notices, keep_statistics};
use onehold::queue::catalogue::{self, Queue};
use onehold::queue::{self, Settings};
use tokio_util::sync::CancellationToken;

use crate::{jobs, process, web};

#[derive(Args)]
pub(crate) struct Worker {
    /// The queues to work on; all of them if none is named
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    ending: Ending,
    #[command(flatten)]
    watching: Watching,
}

pub(crate) async fn run(command: Worker) -> anyhow::Result<()> {
    let queues = named(&command.queues)?;
    let shutdown = process::until_asked_to_end()?;
    let db = process::connect_lazily(&command.database)?;
    web::watch(&command.watching, &db, &shutdown).await?;
    process::until_usable(&db, &shutdown).await?;
    work(db, queues, &command.work, command.ending, shutdown).await
}

/// Works on `queues` until `shutdown`, and then as long as its jobs may take.
pub(crate) async fn work(
    db: Db,
    queues: Vec<Queue>,
    work: &Work,
    ending: Ending,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let queues = queues.into_iter().map(|queue| (queue, work.concurrency.unwrap_or(queue.concurrency))).collect();
    let settings = Settings { grace: ending.grace(), ..Settings::default() };
    let notices = Notices::start(&db);
    let handler = jobs::handler(db.clone());
    let statistics = {
        let (db, shutdown) = (db.clone(), shutdown.clone());
        tokio::spawn(async move { keep_statistics(&db, &shutdown).await })
    };
    let courier = courier::start(db.clone(), shutdown.clone(), ending.grace())?;
    let ended = queue::run(db, &notices, queues, handler, settings, shutdown.clone()).await;
    statistics.abort();
    // Where the queue broke, nothing has told the courier to end.
    shutdown.cancel();
    courier.await?;
    ended
}

/// The queues with these names; every queue for none.
fn named(names: &[String]) -> anyhow::Result<Vec<Queue>> {
    if names.is_empty() {
        return Ok(catalogue::ALL.to_vec());
    }
    names
        .iter()
        .map(|name| match catalogue::ALL.into_iter().find(|queue| queue.name == name) {
            Some(queue) => Ok(queue),
            None => bail!("there is no queue {name}; there are {}", catalogue::ALL.map(|q| q.name).join(", ")),
        })
        .collect()
}
