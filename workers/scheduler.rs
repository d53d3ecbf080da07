//! The scheduler process.

use clap::Args;
use onehold::config::{Database, Watching};
use onehold::queue::schedule;

use crate::{process, web};

#[derive(Args)]
pub(crate) struct Scheduler {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    watching: Watching,
}

pub(crate) async fn run(command: Scheduler) -> anyhow::Result<()> {
    let shutdown = process::until_asked_to_end()?;
    let db = process::connect_lazily(&command.database)?;
    web::watch(&command.watching, &db, &shutdown).await?;
    process::until_usable(&db, &shutdown).await?;
    schedule::run(db, schedule::MINUTELY, shutdown).await
}
