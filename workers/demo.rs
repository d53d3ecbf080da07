//! The demo: a web process's routes and worker processes of their own, on a throwaway database.

use std::process::{ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;
use onehold::config::{self, Listen, OwnServer, Secret, ShopSecrets};
use onehold::db::server::Server;
use onehold::db::{self, Db};
use onehold::demo::{self, Stage};
use onehold::queue;
use onehold::shops::{self, MAIN};
use tokio_util::sync::CancellationToken;

use crate::web;

/// Enough for the scenes' requests at once.
const CONNECTIONS: u32 = 10;

#[derive(Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    server: OwnServer,
}

pub(crate) async fn run(command: Demo) -> anyhow::Result<ExitCode> {
    println!("The main job, on a throwaway database, over HTTP, with signed webhooks and a worker process.\n");
    let server = Server::temporary(&config::temporary_dir(), command.server.pg_bin.clone()).await?;
    let played = play(&server).await;
    server.stop().await?;
    let played = played?;
    println!("\n{}", demo::table(&played));
    let differing = played.iter().filter(|p| !p.as_expected()).count();
    if differing == 0 {
        println!("\nEvery scene ended as expected.");
        return Ok(ExitCode::SUCCESS);
    }
    println!("\n{differing} of {} scenes differ.", played.len());
    Ok(ExitCode::FAILURE)
}

async fn play(server: &Server) -> anyhow::Result<Vec<demo::Played>> {
    let db = Db::connect_with(server.options(), CONNECTIONS).await?;
    db::migrate(&db, queue::migrations()).await?;
    let (key, secret) = throwaway_secrets();
    let secrets = ShopSecrets {
        bootstrap_key: Some(parsed(&key)),
        stripe_webhook_secrets: Vec::new(),
        standard_webhook_secrets: vec![parsed(&secret)],
    };
    let (listener, base) = web::listen(&Listen { host: "127.0.0.1".to_owned(), port: 0 }).await?;
    let shutdown = CancellationToken::new();
    let (for_web, until) = (db.clone(), shutdown.clone());
    let serving = tokio::spawn(async move { web::serve(listener, for_web, &secrets, until).await });
    let url = server.url();
    let start_worker = Box::new(move || {
        tokio::process::Command::new(config::this_executable()?)
            .arg("worker")
            .env("DATABASE_URL", &url)
            .env("RUST_LOG", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
    });
    let shop_id = shops::find(&db, MAIN).await?.context("there is no shop main")?.id;
    let stage = Stage { base, key, webhook_secret: secret, shop_id, db, start_worker };
    let played = demo::play(stage, |line| println!("{line}")).await;
    shutdown.cancel();
    serving.await??;
    played
}

/// A key and a Standard Webhooks secret that nobody has seen before or will again.
pub(crate) fn throwaway_secrets() -> (String, String) {
    let key = format!("once-{:032x}", rand::random::<u128>());
    // The secret is base64: of so many letters and digits every multiple of four is.
    (key, format!("whsec_{:032x}", rand::random::<u128>()))
}

pub(crate) fn parsed(text: &str) -> Secret {
    match text.parse() {
        Ok(secret) => secret,
        Err(never) => match never {},
    }
}
