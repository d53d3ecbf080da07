//! Everything in one process: database, migrations, web, workers, scheduler.

use anyhow::{Context as _, anyhow};
use clap::Args;
use onehold::config::{Database, Ending, Listen, OwnServer, ShopSecrets, Work};
use onehold::db::server::{Server, ServerSettings};
use onehold::db::{self, Db};
use onehold::queue::{self, catalogue, schedule};
use onehold::shops::{self, keys};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{process, web, worker};

#[derive(Args)]
pub(crate) struct Up {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    server: OwnServer,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    secrets: ShopSecrets,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    ending: Ending,
}

pub(crate) async fn run(command: Up) -> anyhow::Result<()> {
    let shutdown = process::until_asked_to_end()?;
    let (listener, address) = web::listen(&command.listen).await?;
    let mut server = match command.database.url() {
        Some(_) => None,
        None => Some(
            Server::start(ServerSettings {
                data_dir: command.server.data_dir.clone(),
                pg_bin: command.server.programs.pg_bin.clone(),
                durable: true,
            })
            .await?,
        ),
    };
    let ended = match connect(&command, server.as_ref()).await {
        Ok(fleet) => serve(&command, fleet, listener, &address, server.as_mut(), shutdown).await,
        Err(error) => Err(error),
    };
    if let Some(server) = server {
        server.stop().await?;
    }
    ended
}

/// Web and workers wait for connections apart: orders are accepted however busy the workers are.
struct Fleet {
    for_web: Db,
    for_work: Db,
}

async fn connect(command: &Up, server: Option<&Server>) -> anyhow::Result<Fleet> {
    let connections = command.database.connections;
    let (for_web, for_work) = match server {
        Some(server) => (
            Db::connect_with(server.options(), connections).await?,
            Db::connect_with(server.options(), connections).await?,
        ),
        None => (process::connect(&command.database).await?, process::connect(&command.database).await?),
    };
    db::migrate(&for_web, queue::migrations()).await?;
    if let Some(server) = server {
        tracing::info!(DATABASE_URL = server.url(), "the other commands reach this database by");
    }
    Ok(Fleet { for_web, for_work })
}

async fn serve(
    command: &Up,
    fleet: Fleet,
    listener: tokio::net::TcpListener,
    address: &str,
    server: Option<&mut Server>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let first_key = first_key(command, &fleet.for_web, server.as_deref()).await?;
    let mut parts = JoinSet::new();
    let (work, ending, secrets) = (command.work.clone(), command.ending, command.secrets.clone());
    let (for_scheduler, until) = (fleet.for_work.clone(), shutdown.clone());
    parts.spawn(async move { schedule::run(for_scheduler, schedule::MINUTELY, until).await.context("scheduler") });
    let until = shutdown.clone();
    parts.spawn(async move {
        worker::work(fleet.for_work, catalogue::ALL.to_vec(), &work, ending, until).await.context("worker")
    });
    let until = shutdown.clone();
    parts.spawn(async move { web::serve(listener, fleet.for_web, &secrets, until).await.context("web") });
    println!("ready {address}");
    if let Some(hint) = first_key {
        tracing::info!("{hint}");
    }

    let first = tokio::select! {
        part = parts.join_next() => part.map(|joined| joined.unwrap_or_else(|e| Err(e.into()))),
        status = server_ended(server) => Some(Err(anyhow!("the database server has ended: {status}"))),
    };
    // Whatever ended first, the others end too: half a fleet looks alive and is not.
    let asked = shutdown.is_cancelled();
    shutdown.cancel();
    let mut result = match first {
        Some(Err(error)) => Err(error),
        Some(Ok(())) if !asked => Err(anyhow!("a part of the fleet ended by itself")),
        _ => Ok(()),
    };
    while let Some(joined) = parts.join_next().await {
        result = result.and(joined.unwrap_or_else(|e| Err(e.into())));
    }
    result
}

/// How to make the first key, where there is none yet.
async fn first_key(command: &Up, db: &Db, server: Option<&Server>) -> anyhow::Result<Option<String>> {
    let Some(main) = shops::find(db, shops::MAIN).await? else { return Ok(None) };
    let live = keys::list(db, main.id).await?.iter().any(|key| key.revoked_at.is_none());
    if live || command.secrets.bootstrap_key.is_some() {
        return Ok(None);
    }
    let url = server.map(|server| format!("DATABASE_URL='{}' ", server.url())).unwrap_or_default();
    Ok(Some(format!("there is no API key yet: {url}onehold keys create --scope orders,stock,ops")))
}

/// When the server of our own ends; never, where there is none.
async fn server_ended(server: Option<&mut Server>) -> String {
    match server {
        Some(server) => match server.ended().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        },
        None => std::future::pending().await,
    }
}
