//! The scheduler process.

use clap::Args;
use onehold::config::Database;
use onehold::queue::schedule;

use crate::process;

#[derive(Args)]
pub(crate) struct Scheduler {
    #[command(flatten)]
    database: Database,
}

pub(crate) async fn run(command: Scheduler) -> anyhow::Result<()> {
    let shutdown = process::until_asked_to_end()?;
    let db = process::connect_lazily(&command.database)?;
    process::until_usable(&db, &shutdown).await?;
    schedule::run(db, schedule::MINUTELY, shutdown).await
}
