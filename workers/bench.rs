//! The bench: a fleet on a throwaway database that is as durable as a real one.

use std::process::Stdio;

use anyhow::{Context as _, bail};
use clap::Args;
use onehold::bench::{self, Fleet, Ratio, Scenario};
use onehold::config::{self, Listen, OwnServer, ShopSecrets};
use onehold::db::server::{Server, ServerSettings};
use onehold::db::{self, Db};
use onehold::queue;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::demo::{parsed, throwaway_secrets};
use crate::web;

const CONNECTIONS: u32 = 10;

#[derive(Args)]
pub(crate) struct Bench {
    /// What to measure: idle, assets, hot-sku; everything if none is named
    #[arg(long, value_name = "NAME", value_parser = scenario)]
    scenario: Vec<Scenario>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: OwnServer,
}

fn scenario(name: &str) -> Result<Scenario, String> {
    let names = Scenario::ALL.map(Scenario::name).join(", ");
    Scenario::from_name(name).ok_or_else(|| format!("there are {names}"))
}

pub(crate) async fn run(command: Bench) -> anyhow::Result<()> {
    let scenarios = if command.scenario.is_empty() { Scenario::ALL.to_vec() } else { command.scenario };
    let data_dir = config::temporary_dir().join(format!("onehold-bench-{}", std::process::id()));
    let settings = ServerSettings { data_dir: data_dir.clone(), pg_bin: command.server.pg_bin, durable: true };
    let server = Server::start(settings).await?;
    let measured = measure(&server, &scenarios).await;
    server.stop().await?;
    std::fs::remove_dir_all(&data_dir).with_context(|| format!("removing {}", data_dir.display()))?;
    let ratios = measured?;
    if command.json {
        for ratio in &ratios {
            println!("{}", serde_json::to_string(ratio)?);
        }
    } else {
        println!("{}", bench::table(&ratios));
    }
    Ok(())
}

async fn measure(server: &Server, scenarios: &[Scenario]) -> anyhow::Result<Vec<Ratio>> {
    let db = Db::connect_with(server.options(), CONNECTIONS).await?;
    db::migrate(&db, queue::migrations()).await?;
    let (key, _) = throwaway_secrets();
    let secrets = ShopSecrets { bootstrap_key: Some(parsed(&key)), ..ShopSecrets::default() };
    let (listener, base) = web::listen(&Listen { host: "127.0.0.1".to_owned(), port: 0 }).await?;
    let shutdown = CancellationToken::new();
    let (for_web, until) = (db.clone(), shutdown.clone());
    let serving = tokio::spawn(async move { web::serve(listener, for_web, &secrets, until).await });
    let fleet = Fleet { base, key, db };
    let mut ratios = Vec::new();
    for scenario in scenarios {
        let worker = if scenario.wants_workers() { Some(start_worker(server)?) } else { None };
        ratios.extend(bench::run(*scenario, &fleet, |line| eprintln!("{line}")).await?);
        if let Some(mut worker) = worker {
            worker.kill().await?;
        }
    }
    shutdown.cancel();
    if let Err(error) = serving.await? {
        bail!("the web process: {error:#}");
    }
    Ok(ratios)
}

fn start_worker(server: &Server) -> anyhow::Result<Child> {
    Ok(tokio::process::Command::new(config::this_executable()?)
        .arg("worker")
        .env("DATABASE_URL", server.url())
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?)
}
