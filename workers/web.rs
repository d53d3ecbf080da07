//! The web process.

use anyhow::Context as _;
use clap::Args;
use onehold::config::{Database, Listen, ShopSecrets};
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
    let listener = TcpListener::bind((listen.host.as_str(), listen.port))
        .await
        .with_context(|| format!("{}:{} cannot be listened on", listen.host, listen.port))?;
    let port = listener.local_addr()?.port();
    let host = if listen.host.contains(':') { format!("[{}]", listen.host) } else { listen.host.clone() };
    Ok((listener, format!("http://{host}:{port}")))
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
