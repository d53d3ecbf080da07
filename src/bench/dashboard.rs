//! The main job with the dashboard open beside it: an operator has the overview before him, whose live numbers come
//! every two seconds, and goes round the other pages, one a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::Client;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::end_to_end::{self, Side};
use super::{Bench, Ratio, Scenario, drive};

/// What an operator looks at, one after the other.
const PAGES: [&str; 6] =
    ["/ops", "/ops/orders", "/ops/inventory", "/ops/queues", "/ops/connections", "/ops/orders?status=converted"];
const EVERY: Duration = Duration::from_secs(1);
/// How long a page may take beside sixty-four buyers.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let contest = end_to_end::contest(bench).await?;
    let tallies = drive::alternate(bench, &contest, &[Side::Watched, Side::Ours]).await?;
    Ok(vec![Ratio::of_rates(Scenario::Dashboard, "open to closed", &tallies[0], &tallies[1])])
}

/// Somebody at the dashboard, from sitting down until [`leave`](Operator::leave).
pub(super) struct Operator {
    leaves: CancellationToken,
    pages: AbortOnDropHandle<anyhow::Result<()>>,
    live: AbortOnDropHandle<anyhow::Result<()>>,
    seen: Arc<AtomicUsize>,
    numbers: Arc<AtomicUsize>,
}

impl Operator {
    /// Signs in, and begins to look.
    pub(super) async fn sit_down(bench: &Bench<'_>) -> anyhow::Result<Self> {
        let client = Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        let base = bench.fleet.base.clone();
        let answer = client.post(format!("{base}/ops/sign-in")).form(&[("key", &bench.fleet.key)]).send().await?;
        let cookie = answer.headers().get("set-cookie").context("the dashboard opened no session")?;
        let cookie = cookie.to_str()?.split(';').next().unwrap_or_default().to_owned();
        let leaves = CancellationToken::new();
        let (seen, numbers) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let browser = Browser { client, base, cookie };
        let turning = turn_pages(browser.clone(), Arc::clone(&seen), leaves.clone());
        let watching = watch_live(browser, Arc::clone(&numbers), leaves.clone());
        let pages = AbortOnDropHandle::new(tokio::spawn(turning));
        let live = AbortOnDropHandle::new(tokio::spawn(watching));
        Ok(Self { leaves, pages, live, seen, numbers })
    }

    /// Ends, and makes sure that pages and numbers were there.
    pub(super) async fn leave(self) -> anyhow::Result<()> {
        self.leaves.cancel();
        self.pages.await?.context("a page beside the buyers")?;
        self.live.await?.context("the live numbers beside the buyers")?;
        let (seen, numbers) = (self.seen.load(Ordering::Relaxed), self.numbers.load(Ordering::Relaxed));
        ensure!(seen > 0 && numbers > 0, "an operator saw {seen} pages and {numbers} times the live numbers");
        Ok(())
    }
}

#[derive(Clone)]
struct Browser {
    client: Client,
    base: String,
    cookie: String,
}

impl Browser {
    async fn open(&self, path: &str) -> anyhow::Result<reqwest::Response> {
        let answer = self.client.get(format!("{}{path}", self.base)).header("cookie", &self.cookie).send().await?;
        ensure!(answer.status().is_success(), "{path} was answered {}", answer.status());
        Ok(answer)
    }
}

async fn turn_pages(browser: Browser, seen: Arc<AtomicUsize>, leaves: CancellationToken) -> anyhow::Result<()> {
    let mut next = tokio::time::interval(EVERY);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for path in PAGES.iter().cycle() {
        if leaves.run_until_cancelled(next.tick()).await.is_none() {
            break;
        }
        let page = async { anyhow::Ok(browser.open(path).await?.bytes().await?) };
        tokio::time::timeout(PATIENCE, page).await.with_context(|| format!("{path} took too long"))??;
        seen.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Opens the stream again when it ends, as a browser does.
async fn watch_live(browser: Browser, numbers: Arc<AtomicUsize>, leaves: CancellationToken) -> anyhow::Result<()> {
    loop {
        // What is on its way when the operator leaves is waited for no longer.
        let Some(answer) = leaves.run_until_cancelled(browser.open("/ops/live")).await else { return Ok(()) };
        let mut answer = answer?;
        loop {
            let Some(part) = leaves.run_until_cancelled(answer.chunk()).await else { return Ok(()) };
            if part?.is_none() {
                break;
            }
            numbers.fetch_add(1, Ordering::Relaxed);
        }
    }
}
