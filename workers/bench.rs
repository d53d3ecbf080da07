//! The bench: a fleet on a throwaway database that is as durable as a real one.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use onehold::bench::{self, Effort, Fleet, Progress, Ratio, Scenario};
use onehold::config::{self, Listen, OwnServer, ShopSecrets};
use onehold::db::server::{Server, ServerSettings};
use onehold::db::{self, Db};
use onehold::queue;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::demo::{parsed, throwaway_secrets};
use crate::{process, web};

const CONNECTIONS: u32 = 10;

#[derive(Args)]
pub(crate) struct Bench {
    /// What to measure; may be given several times
    #[arg(long, value_name = "NAME", value_parser = scenario, long_help = format!("What to measure; may be given several times: {}", names()))]
    scenario: Vec<Scenario>,
    /// Every scenario, which is also what is measured if none is named
    #[arg(long, conflicts_with = "scenario")]
    all: bool,
    /// Draws curves of one reservation's cost as an installation grows, as SVG files in this directory; alone, or
    /// after the scenarios that are named
    #[arg(long, value_name = "DIR")]
    curves: Option<PathBuf>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Small sizes and short rounds: shows that everything runs, and measures nothing
    #[arg(long)]
    exercise: bool,
    /// After so many minutes the bench ends with an error, whatever stands
    #[arg(long, value_name = "MINUTES", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    limit: u64,
    /// On this database instead of a throwaway one; it must have no orders and no assets, is left full of what was
    /// measured, and needs a superuser. Statements and fsyncs are not measured there
    #[arg(long, value_name = "URL")]
    on: Option<String>,
    #[command(flatten)]
    server: OwnServer,
}

/// Where it is measured.
struct Ground {
    options: PgConnectOptions,
    url: String,
    data_dir: Option<PathBuf>,
    statements: bool,
}

fn names() -> String {
    Scenario::ALL.map(Scenario::name).join(", ")
}

fn scenario(name: &str) -> Result<Scenario, String> {
    Scenario::from_name(name).ok_or_else(|| format!("there are {}", names()))
}

pub(crate) async fn run(command: Bench) -> anyhow::Result<()> {
    let everything = command.all || (command.scenario.is_empty() && command.curves.is_none());
    let scenarios = if everything { Scenario::ALL.to_vec() } else { command.scenario };
    let effort = if command.exercise { Effort::EXERCISE } else { Effort::FULL };
    let asked_to_end = process::until_asked_to_end()?;
    let limit = Duration::from_secs(60 * command.limit);
    let within = async |ground: &Ground| {
        let measuring = measure(ground, &scenarios, command.curves.as_deref(), effort);
        asked_to_end.run_until_cancelled(tokio::time::timeout(limit, measuring)).await
    };
    let measured = match &command.on {
        Some(url) => {
            let options = url.parse().context("the URL of the database")?;
            within(&Ground { options, url: url.clone(), data_dir: None, statements: false }).await
        }
        None => {
            let data_dir = config::temporary_dir().join(format!("onehold-bench-{}", std::process::id()));
            let settings =
                ServerSettings { data_dir: data_dir.clone(), pg_bin: command.server.pg_bin.clone(), durable: true };
            let (server, statements) = start(settings).await?;
            let here = Some(server.data_dir().to_owned());
            let measured =
                within(&Ground { options: server.options(), url: server.url(), data_dir: here, statements }).await;
            server.stop().await?;
            std::fs::remove_dir_all(&data_dir).with_context(|| format!("removing {}", data_dir.display()))?;
            measured
        }
    };
    let ratios = match measured {
        Some(Ok(ratios)) => ratios?,
        Some(Err(_)) => bail!("the bench took longer than {} minutes", command.limit),
        None => bail!("the bench was asked to end"),
    };
    if command.json {
        for ratio in &ratios {
            println!("{}", serde_json::to_string(ratio)?);
        }
    } else {
        println!("{}", bench::table(&ratios));
    }
    Ok(())
}

/// The server, and whether it can count statements: to load what counts them it is started twice.
async fn start(settings: ServerSettings) -> anyhow::Result<(Server, bool)> {
    let server = Server::start(settings.clone()).await?;
    let db = Db::connect_with(server.options(), 1).await?;
    let statements = bench::preload(&db).await?;
    db.pool().close().await;
    if !statements {
        return Ok((server, false));
    }
    server.stop().await?;
    Ok((Server::start(settings).await?, true))
}

async fn measure(
    ground: &Ground,
    scenarios: &[Scenario],
    curves: Option<&Path>,
    effort: Effort,
) -> anyhow::Result<Vec<Ratio>> {
    // What is laid in takes long, and that is no news.
    let options = ground.options.clone().disable_statement_logging();
    let db = Db::connect_with(options, CONNECTIONS).await?;
    db::migrate(&db, queue::migrations()).await?;
    bench::check_unused(&db).await?;
    if ground.statements {
        bench::prepare(&db).await?;
    }
    let (key, webhook_secret) = throwaway_secrets();
    let secrets = ShopSecrets {
        bootstrap_key: Some(parsed(&key)),
        standard_webhook_secrets: vec![parsed(&webhook_secret)],
        ..ShopSecrets::default()
    };
    let (listener, base) = web::listen(&Listen { host: "127.0.0.1".to_owned(), port: 0 }).await?;
    let shutdown = CancellationToken::new();
    let (for_web, until) = (db.clone(), shutdown.clone());
    let serving = tokio::spawn(async move { web::serve(listener, for_web, &secrets, until).await });
    let fleet =
        Fleet { base, key, webhook_secret, db, statements: ground.statements, data_dir: ground.data_dir.clone() };
    let bar = progress(scenarios.len() + usize::from(curves.is_some()));
    let say = |what: &Progress| tell(&bar, what);
    let mut ratios = Vec::new();
    for scenario in scenarios {
        let worker = if scenario.wants_workers() { Some(start_worker(ground)?) } else { None };
        ratios.extend(bench::run(*scenario, &fleet, effort, &say).await?);
        bar.inc(1);
        if let Some(mut worker) = worker {
            worker.kill().await?;
        }
    }
    if let Some(dir) = curves {
        let mut worker = start_worker(ground)?;
        let curves = bench::curves(&fleet, effort, &say).await?;
        worker.kill().await?;
        for file in bench::draw(&curves, dir)? {
            say(&Progress::Step(format!("drew {}", file.display())));
        }
        ratios.extend(bench::growth_of(&curves));
    }
    bar.finish_and_clear();
    shutdown.cancel();
    if let Err(error) = serving.await? {
        bail!("the web process: {error:#}");
    }
    fleet.db.pool().close().await;
    Ok(ratios)
}

/// A bar over the scenarios; drawn on a terminal only.
fn progress(scenarios: usize) -> ProgressBar {
    let bar = ProgressBar::new(scenarios as u64);
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {bar:20} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// What is going on: beside the bar on a terminal, a line each elsewhere; what is skipped stays in sight.
fn tell(bar: &ProgressBar, what: &Progress) {
    match what {
        Progress::Step(line) if bar.is_hidden() => eprintln!("{line}"),
        Progress::Step(line) => bar.set_message(line.clone()),
        Progress::Skipped(line) => bar.suspend(|| eprintln!("{line}")),
    }
}

fn start_worker(ground: &Ground) -> anyhow::Result<Child> {
    Ok(tokio::process::Command::new(config::this_executable()?)
        .arg("worker")
        .env("DATABASE_URL", &ground.url)
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?)
}
