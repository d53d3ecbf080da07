//! What every process does alike: logging, connecting, ending.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use onehold::config::{Database, Logging};
use onehold::db::{self, Db, MigrateError};
use onehold::traces::{self, Exporting};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Logs to standard error, text on a terminal and JSON where asked for; standard output is for answers. Traces go to
/// the collector that is named, for as long as what this gives is there.
pub(crate) fn log(logging: &Logging, runtime: &Handle) -> Option<Exporting> {
    let filter = EnvFilter::try_new(&logging.filter).unwrap_or_else(|error| {
        eprintln!("onehold: the log filter {:?} is not understood ({error}); logging info", logging.filter);
        EnvFilter::new("info")
    });
    // A baseline of the bench tells of each job that it runs, which would be measured too.
    #[cfg(feature = "baselines")]
    let filter = match "graphile_worker=warn".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines =
        if logging.log_json { lines.json().boxed() } else { lines.with_ansi(std::io::stderr().is_terminal()).boxed() };
    let (traces, exporting) = match logging.collector().map(|url| traces::start(url, runtime.clone())) {
        None => (None, None),
        Some(Ok((layer, exporting))) => (Some(layer), Some(exporting)),
        Some(Err(error)) => {
            eprintln!("onehold: traces are sent nowhere: {error}");
            (None, None)
        }
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces).init();
    exporting
}

/// Connects now, or says that no database was named.
pub(crate) async fn connect(database: &Database) -> anyhow::Result<Db> {
    Db::connect(url(database)?, database.connections).await.context("the database cannot be reached")
}

/// Connects now, to a database that is as this binary needs it; or says what to do.
pub(crate) async fn connect_migrated(database: &Database) -> anyhow::Result<Db> {
    let db = connect(database).await?;
    db::check_schema(&db).await?;
    Ok(db)
}

/// Connects at first use, so that a database that is down at the start does not end the process.
pub(crate) fn connect_lazily(database: &Database) -> anyhow::Result<Db> {
    Db::connect_lazy(url(database)?, database.connections).context("DATABASE_URL")
}

fn url(database: &Database) -> anyhow::Result<&str> {
    match database.url() {
        Some(url) => Ok(url),
        None => {
            bail!("no database is named; give --database-url or DATABASE_URL, or use `onehold up`, which runs its own")
        }
    }
}

/// Waits until the database can be reached, and ends with an error where its schema is not this binary's:
/// no waiting mends that.
pub(crate) async fn until_usable(db: &Db, shutdown: &CancellationToken) -> anyhow::Result<()> {
    loop {
        match db::check_schema(db).await {
            Ok(()) => return Ok(()),
            Err(error @ (MigrateError::Newer { .. } | MigrateError::Behind { .. } | MigrateError::Migration(_))) => {
                return Err(error.into());
            }
            Err(MigrateError::Database(error)) => tracing::warn!(%error, "waiting for the database"),
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_none() {
            return Ok(());
        }
    }
}

/// A token that is cancelled by SIGTERM or Ctrl-C.
pub(crate) fn until_asked_to_end() -> anyhow::Result<CancellationToken> {
    let token = CancellationToken::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let asked = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => tracing::info!("SIGTERM: ending"),
            _ = int.recv() => tracing::info!("Ctrl-C: ending"),
        }
        asked.cancel();
    });
    Ok(token)
}
