//! The narrated run of the main job: scenes over real HTTP with signed webhooks, each with what was
//! expected and what happened.

mod client;
mod money;
mod receiver;
mod scenes;
mod sql;

use std::time::Duration;

use anyhow::Context as _;
use client::Client;
use tokio::process::Child;

use crate::db::Db;

/// What the scenes play on: a running web process, its database, and a way to start a worker process.
pub struct Stage {
    /// Where the web process listens: `http://127.0.0.1:PORT`.
    pub base: String,
    /// An API key of the shop `main` with every scope.
    pub key: String,
    /// The shop's Standard Webhooks secret (`whsec_…`).
    pub webhook_secret: String,
    /// The shop `main`.
    pub shop_id: i32,
    /// The database behind it, for what no client can do: standing in a job's way.
    pub db: Db,
    /// Starts one worker process, which is killed when its handle is dropped.
    pub start_worker: Box<dyn Fn() -> std::io::Result<Child> + Send + Sync>,
}

/// One scene as it was played.
#[derive(Clone, Debug)]
pub struct Played {
    /// What was done.
    pub scene: &'static str,
    /// What must be true afterwards.
    pub expected: String,
    /// What was.
    pub happened: String,
}

impl Played {
    /// Whether it happened as expected.
    #[must_use]
    pub fn as_expected(&self) -> bool {
        self.expected == self.happened
    }
}

/// A scene that has not ended by then has failed.
const MOST_PER_SCENE: Duration = Duration::from_secs(30);

/// Plays every scene in turn and tells `narrate` of each before and after.
///
/// # Errors
/// A stage that cannot be set. A scene that fails is not an error but told as it happened.
pub async fn play(stage: Stage, mut narrate: impl FnMut(&str)) -> anyhow::Result<Vec<Played>> {
    let mut worker = (stage.start_worker)().context("starting a worker")?;
    let client = Client::new(&stage)?;
    let mut all = Vec::new();
    for scene in scenes::ALL {
        narrate(&format!("… {}", scene.name));
        let began = std::time::Instant::now();
        let happened = match tokio::time::timeout(MOST_PER_SCENE, scene.play(&stage, &client, &mut worker)).await {
            Ok(Ok(happened)) => happened,
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("not over after {} s", MOST_PER_SCENE.as_secs()),
        };
        let played = Played { scene: scene.name, expected: scene.expected.to_owned(), happened };
        let mark = if played.as_expected() { "✓" } else { "✗" };
        narrate(&format!("{mark} {} ({:.1} s)", played.scene, began.elapsed().as_secs_f64()));
        all.push(played);
    }
    worker.kill().await.context("ending the worker")?;
    Ok(all)
}

/// The scenes one below the other: what was expected, and what happened.
#[must_use]
pub fn table(played: &[Played]) -> String {
    let mut lines = Vec::new();
    for p in played {
        lines.push(format!("{}  {}", if p.as_expected() { "ok" } else { "NO" }, p.scene));
        lines.push(format!("      expected  {}", p.expected));
        lines.push(format!("      happened  {}", p.happened));
    }
    lines.join("\n")
}
