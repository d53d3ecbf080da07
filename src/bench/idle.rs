//! One order after the other on a system that has nothing else to do: from the POST to `reserved`, in fsyncs and in
//! bare commits of this machine; and one order by the combiner beside one without it.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use super::assets::reserve;
use super::{Bench, Ratio, Scenario, sql};
use crate::allocator::{self, Combiner, Outcome};
use crate::orders;

const ORDERS: usize = 200;
const CATEGORY: &str = "bench-idle";
const MACHINES: i32 = 2_000;
/// What PostgreSQL writes at a time.
const PAGE: [u8; 8192] = [0; 8192];

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let pool = bench.fleet.db.pool();
    lay_in(bench).await?;
    sql::prepare_commits(pool).await?;
    let orders = bench.effort.size(ORDERS, 20);
    let mut ratios = by_http(bench, usize::try_from(orders)?).await?;
    bench.say(&format!("{orders} orders by the combiner, each beside one without it"));
    let (mut combined, mut alone) = (Vec::new(), Vec::new());
    let combiner = Combiner::start(&bench.fleet.db);
    let placed = sql::place_assets(pool, bench.shop_id, CATEGORY, 2 * orders).await?;
    for two in placed.chunks_exact(2) {
        combined.push(reserve(bench, &combiner, two[0]).await?);
        let began = Instant::now();
        let outcome = allocator::run(&bench.fleet.db, bench.shop_id, two[1]).await?;
        alone.push(began.elapsed());
        ensure!(outcome == Outcome::Reserved, "an order came to {outcome:?}");
        orders::cancel(&bench.fleet.db, bench.shop_id, two[1], "bench", None).await?;
    }
    ratios.push(Ratio::of_times(Scenario::Idle, "combiner to one order without it", combined, alone));
    Ok(ratios)
}

/// The machines that [`order`] asks for.
pub(super) async fn lay_in(bench: &Bench<'_>) -> anyhow::Result<()> {
    Ok(sql::assets(bench.fleet.db.pool(), bench.shop_id, CATEGORY, MACHINES).await?)
}

async fn by_http(bench: &Bench<'_>, orders: usize) -> anyhow::Result<Vec<Ratio>> {
    let (mut ours, mut commits, mut fsyncs) = (Vec::new(), Vec::new(), Vec::new());
    let mut file = bench.fleet.data_dir.as_deref().map(scratch).transpose()?;
    let http = reqwest::Client::new();
    bench.say(&format!("{orders} orders, each beside one bare commit and one fsync"));
    for n in 0..orders {
        let began = Instant::now();
        sql::bare_commit(bench.fleet.db.pool()).await?;
        commits.push(began.elapsed());
        if let Some(file) = &mut file {
            fsyncs.push(fsync(file)?);
        }
        ours.push(order(bench, &http, &format!("{CATEGORY}-{n}")).await?);
    }
    let mut ratios =
        vec![Ratio::of_times(Scenario::Idle, "placed to reserved, in bare commits", ours.clone(), commits)];
    if fsyncs.is_empty() {
        bench.say("fsyncs were not measured: the database's disk is not ours");
    } else {
        ratios.push(Ratio::of_times(Scenario::Idle, "placed to reserved, in fsyncs", ours, fsyncs));
    }
    Ok(ratios)
}

fn scratch(data_dir: &Path) -> anyhow::Result<File> {
    Ok(File::create(data_dir.join("bench-fsync"))?)
}

/// The time in which a page that was appended is on disk.
fn fsync(file: &mut File) -> anyhow::Result<Duration> {
    let began = Instant::now();
    file.write_all(&PAGE)?;
    file.sync_data()?;
    Ok(began.elapsed())
}

/// The time from the POST of an order to the answer that it is reserved; placing it is part of it.
pub(super) async fn order(bench: &Bench<'_>, http: &reqwest::Client, key: &str) -> anyhow::Result<Duration> {
    let order = json!({"lines": [{"asset": {"category": CATEGORY}}]});
    let began = Instant::now();
    let answer: Value = http
        .post(format!("{}/v1/orders", bench.fleet.base))
        .bearer_auth(&bench.fleet.key)
        .header("Idempotency-Key", key)
        .header("Prefer", "wait=10")
        .timeout(Duration::from_secs(15))
        .json(&order)
        .send()
        .await?
        .json()
        .await?;
    let took = began.elapsed();
    ensure!(answer["status"] == "reserved", "order {key} was answered {answer}");
    Ok(took)
}
