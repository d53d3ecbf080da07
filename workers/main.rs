//! The executable `onehold`: the command line. One file per process; wiring only.
#![warn(clippy::unwrap_used)]

mod bench;
mod demo;
mod endpoints;
mod import;
mod jobs;
mod keys;
mod process;
mod scheduler;
mod shops;
mod top;
mod up;
mod verify;
mod web;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onehold::config::{Database, Logging};
use onehold::db;
use onehold::queue;

/// Sells things that exist once.
#[derive(Parser)]
#[command(name = "onehold", version, about, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    logging: Logging,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs everything on this machine: database, migrations, web, workers, scheduler
    Up(up::Up),
    /// Plays the main job in scenes on a throwaway database, and says what happened
    Demo(demo::Demo),
    /// Brings the database up to this release; safe from several machines at once
    Migrate(Database),
    /// Answers the API and the webhooks
    Web(web::Web),
    /// Works on jobs
    Worker(worker::Worker),
    /// Enqueues the housekeeping, each minute; any number may run
    Scheduler(scheduler::Scheduler),
    /// Makes, lists and revokes API keys
    Keys(keys::Keys),
    /// Opens and lists shops
    Shops(shops::Shops),
    /// Adds, lists and disables the endpoints that are told of decisions, and tells them again
    Endpoints(endpoints::Endpoints),
    /// Reads assets or stock from a CSV or NDJSON file, all or nothing
    Import(import::Import),
    /// The dashboard's overview in a terminal
    Top(top::Top),
    /// Checks every invariant on the live database
    Verify(Database),
    /// Measures this installation beside what it is compared with
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    // Dropped before the runtime, on which the last traces are sent.
    let _traces = process::log(&cli.logging, runtime.handle());
    match runtime.block_on(run(cli.command)) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("onehold: {}", told(error));
    ExitCode::FAILURE
}

/// The error and its causes, each once: many errors quote their cause in their own words already.
fn told(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(command) => up::run(command).await?,
        Command::Demo(command) => return demo::run(command).await,
        Command::Migrate(database) => {
            db::migrate(&process::connect(&database).await?, queue::migrations()).await?;
            println!("the database is up to this release");
        }
        Command::Web(command) => web::run(command).await?,
        Command::Worker(command) => worker::run(command).await?,
        Command::Scheduler(command) => scheduler::run(command).await?,
        Command::Keys(command) => keys::run(command).await?,
        Command::Shops(command) => shops::run(command).await?,
        Command::Endpoints(command) => endpoints::run(command).await?,
        Command::Import(command) => return import::run(command).await,
        Command::Top(command) => top::run(command).await?,
        Command::Verify(database) => return verify::run(&process::connect(&database).await?).await,
        Command::Bench(command) => bench::run(command).await?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    #[test]
    fn a_cause_that_is_quoted_already_is_not_told_again() {
        let io = std::io::Error::other("refused");
        let quoted: Result<(), _> = Err(onehold::db::MigrateError::Database(io.into()));
        let error = quoted.context("verify").unwrap_err();
        assert_eq!(super::told(&error).matches("refused").count(), 1, "{}", super::told(&error));
        assert_eq!(super::told(&anyhow!("inner").context("outer")), "outer: inner");
    }
}
