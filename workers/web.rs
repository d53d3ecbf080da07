//! The web process.

use anyhow::Context as _;
use clap::Args;
use onehold::config::{Database, Listen, ShopSecrets, Watching};
use onehold::db::{Db, Notices};
use onehold::web::{self, AppState};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::process;

#[derive(Args)]
pub(crate) struct Web {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    secrets: ShopSecrets,
}

pub(crate) async fn run(command: Web) -> anyhow::Result<()> {
    let shutdown = process::until_asked_to_end()?;
    let db = process::connect_lazily(&command.database)?;
    let (listener, address) = listen(&command.listen).await?;
    tracing::info!(address, "listening");
    let (looked_at, until) = (db.clone(), shutdown.clone());
    // It serves meanwhile: /readyz says the same to whoever asks, and a database can come later.
    tokio::spawn(async move {
        if let Err(error) = process::until_usable(&looked_at, &until).await {
            tracing::error!("not ready: {error:#}");
        }
    });
    serve(listener, db, &command.secrets, shutdown).await
}

/// Binds, and gives the address as a URL.
pub(crate) async fn listen(listen: &Listen) -> anyhow::Result<(TcpListener, String)> {
    bind(&listen.host, listen.port).await
}

async fn bind(host: &str, port: u16) -> anyhow::Result<(TcpListener, String)> {
    let listener =
        TcpListener::bind((host, port)).await.with_context(|| format!("{host}:{port} cannot be listened on"))?;
    let port = listener.local_addr()?.port();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok((listener, format!("http://{host}:{port}")))
}

/// Tells how this process goes, where it was asked to, until `shutdown`. What happens to that is no reason to
/// end the process.
pub(crate) async fn watch(watching: &Watching, db: &Db, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let Some(port) = watching.metrics_port else { return Ok(()) };
    let (listener, address) = bind(&watching.metrics_host, port).await?;
    tracing::info!(address, "answering /metrics, /healthz and /readyz");
    tokio::spawn(web::serve(listener, web::watching(db, shutdown.clone()), shutdown.clone()));
    Ok(())
}

/// Serves the API until `shutdown`.
pub(crate) async fn serve(
    listener: TcpListener,
    db: Db,
    secrets: &ShopSecrets,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let notices = Notices::start(&db);
    let app = web::app(AppState::new(db, notices, secrets, shutdown.clone()));
    web::serve(listener, app, shutdown).await.context("serving")
}
