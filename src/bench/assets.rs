//! Machines that exist once, in categories of a thousand to a million, the largest with up to 50,000 live holds in
//! front: the time of one reservation must not grow with either. Then sixty-four buyers at once in the largest,
//! beside the floor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use uuid::Uuid;

use super::drive::{self, Act, Contest, Did, Party, Session};
use super::hot_sku::BUYERS;
use super::{Bench, Ratio, Scenario, sql};
use crate::allocator::{Combiner, Outcome};
use crate::orders;

/// How many assets the categories have; the smallest is what the others are compared with.
const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// How many of the largest category's are held, one after the other.
const HOLDS: [usize; 3] = [0, 5_000, 50_000];
/// How many reservations are timed at each point.
const RUNS: usize = 200;
const ORDERS: usize = 15_000;

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let sizes = SIZES.map(|size| bench.effort.size(size, 100));
    for size in sizes {
        lay_in(bench, size).await?;
    }
    let [small, large] = [sizes[0], sizes[3]];
    let mut ratios = Vec::new();
    let runs = bench.effort.size(RUNS, 20);
    bench.say("one reservation after the other, by the size of the category");
    let [first, ten, hundred, million] = &in_turn(bench, &sizes, runs).await?[..] else {
        anyhow::bail!("a size was not measured");
    };
    for (name, times) in [("10000 to 1000", ten), ("100000 to 1000", hundred), ("1000000 to 1000", million)] {
        ratios.push(Ratio::of_times(Scenario::Assets, name, times.clone(), first.clone()));
    }
    for (held, name) in HOLDS.windows(2).zip(["1000000 with 5000 holds to 1000", "1000000 with 50000 holds to 1000"]) {
        let [before, now] = [held[0], held[1]].map(|holds| bench.effort.size(holds, 0));
        bench.say(&format!("{now} of {large} are held"));
        sql::take_assets(bench.fleet.db.pool(), bench.shop_id, &category(large), (before, now), false).await?;
        let times = in_turn(bench, &[large, small], runs).await?;
        ratios.push(Ratio::of_times(Scenario::Assets, name, times[0].clone(), times[1].clone()));
    }
    let contest =
        Assets { category: category(large), orders: bench.effort.size(ORDERS, 500), floors: AtomicUsize::new(0) };
    let tallies = drive::alternate(bench, &contest, &[Side::Ours, Side::Floor]).await?;
    ratios.push(Ratio::of_rates(Scenario::Assets, "to floor", &tallies[0], &tallies[1]));
    Ok(ratios)
}

fn category(size: i32) -> String {
    format!("bench-assets-{size}")
}

async fn lay_in(bench: &Bench<'_>, size: i32) -> anyhow::Result<()> {
    bench.say(&format!("{size} assets"));
    Ok(sql::assets(bench.fleet.db.pool(), bench.shop_id, &category(size), size).await?)
}

/// The times of one reservation after the other, in each category in turn.
async fn in_turn(bench: &Bench<'_>, sizes: &[i32], runs: i32) -> anyhow::Result<Vec<Vec<Duration>>> {
    let combiner = Combiner::start(&bench.fleet.db);
    let mut placed = Vec::new();
    for size in sizes {
        placed.push(sql::place_assets(bench.fleet.db.pool(), bench.shop_id, &category(*size), runs).await?);
    }
    sql::checkpoint(bench.fleet.db.pool()).await?;
    let mut times = vec![Vec::new(); sizes.len()];
    for n in 0..usize::try_from(runs)? {
        for (orders, times) in placed.iter().zip(&mut times) {
            times.push(reserve(bench, &combiner, orders[n]).await?);
        }
    }
    Ok(times)
}

/// The time of one reservation, which is given back afterwards.
pub(super) async fn reserve(bench: &Bench<'_>, combiner: &Combiner, order: Uuid) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let outcome = combiner.run(bench.shop_id, order).await?;
    let took = began.elapsed();
    ensure!(outcome == Outcome::Reserved, "an order came to {outcome:?}");
    orders::cancel(&bench.fleet.db, bench.shop_id, order, "bench", None).await?;
    Ok(took)
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Ours,
    /// The hold's row, for an asset that nobody else wants, and its commit.
    Floor,
}

struct Assets {
    category: String,
    orders: i32,
    /// Each round of the floor takes assets of its own.
    floors: AtomicUsize,
}

impl Contest for Assets {
    type Side = Side;

    async fn party(&self, bench: &Bench<'_>, side: Side) -> anyhow::Result<Party> {
        let pool = bench.fleet.db.pool();
        let placed = sql::place_assets(pool, bench.shop_id, &self.category, self.orders).await?;
        match side {
            Side::Ours => {
                let reserved = |outcome: &Outcome| *outcome == Outcome::Reserved;
                Ok(drive::combined(bench, placed, BUYERS, reserved).await?.0)
            }
            Side::Floor => {
                let category = format!("bench-floor-{}", self.floors.fetch_add(1, Ordering::Relaxed));
                sql::assets(pool, bench.shop_id, &category, self.orders).await?;
                let assets = sql::asset_ids(pool, bench.shop_id, &category).await?;
                floor(bench, placed, assets).await
            }
        }
    }

    async fn check(&self, bench: &Bench<'_>, _: Side, orders: &[Uuid], done: usize) -> anyhow::Result<()> {
        let found = sql::standing(bench.fleet.db.pool(), bench.shop_id, orders).await?;
        let done = i64::try_from(done)?;
        if found.refused > 0 {
            bench.say(&format!("{} of {} were refused as contended", found.refused, found.refused + done));
        }
        ensure!((found.holds, found.assets) == (done, done), "{done} were done, and there are {found:?}");
        Ok(())
    }
}

async fn floor(bench: &Bench<'_>, placed: Vec<Uuid>, assets: Vec<Uuid>) -> anyhow::Result<Party> {
    let (orders, assets, shop_id) = (Arc::new(placed), Arc::new(assets), bench.shop_id);
    let client = |session: Session| -> Act {
        let (orders, assets) = (Arc::clone(&orders), Arc::clone(&assets));
        Box::new(move |n| {
            let (session, order, asset) = (Arc::clone(&session), orders[n], assets[n]);
            Box::pin(async move {
                sql::bare_hold(&mut *session.lock().await, shop_id, order, asset).await?;
                Ok(Did::Done(1))
            })
        })
    };
    let clients = drive::sessions(bench.fleet.db.options(), BUYERS).await?.into_iter().map(client).collect();
    Ok(Party { clients, operations: orders.len().min(assets.len()), orders, db: None })
}
