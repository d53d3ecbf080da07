//! The cost of one reservation as an installation grows: one order after the other at each of a few sizes, beside a
//! bare commit, whose time shows what is the machine's.

mod draw;
mod long_open;
mod sql;

use std::time::{Duration, Instant};

use anyhow::ensure;
use uuid::Uuid;

use super::ratio::Figures;
use super::sql as common;
use super::{Bench, Ratio, Scenario, assets, idle};
use crate::allocator::{Combiner, Outcome};
pub use draw::draw;

/// How many reservations are timed at each point.
const RUNS: usize = 100;
const ASSETS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const HOLDS: [usize; 4] = [0, 1_000, 10_000, 50_000];
const JOBS: [usize; 4] = [0, 10_000, 100_000, 1_000_000];
const HISTORY: [usize; 4] = [0, 10_000, 100_000, 300_000];
const SHOPS: [usize; 4] = [0, 100, 1_000, 10_000];
/// The category that the holds stand in, and that other shops have too.
const CATEGORY: &str = "bench-growth";
const SKU: &str = "bench-growth-";

/// The cost of one reservation by one thing that grows.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The name of its file and of its ratio, in short words that stay.
    pub name: &'static str,
    /// What grows.
    pub grows: &'static str,
    /// What is timed.
    pub timed: &'static str,
    /// From the smallest on.
    pub points: Vec<Point>,
}

/// One size.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// How large.
    pub size: usize,
    /// Of one reservation.
    pub reservation: Figures,
    /// Of one bare commit, in turn with the reservations.
    pub commit: Figures,
}

impl Curve {
    fn new(name: &'static str, grows: &'static str, timed: &'static str) -> Self {
        Self { name, grows, timed, points: Vec::new() }
    }

    /// The time at the largest size to that at the smallest.
    pub(super) fn ratio(&self) -> Option<Ratio> {
        let (small, large) = (self.points.first()?.reservation, self.points.last()?.reservation);
        Some(Ratio::of_figures(Scenario::Growth, self.name, large, small))
    }
}

/// What is reserved at a point.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// One asset of a category, by the combiner.
    Asset(&'a str),
    /// One unit of the first SKU with this prefix, by the combiner.
    Unit(&'a str),
    /// One asset, from the POST of its order to the answer that it is reserved.
    ByHttp,
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Curve>> {
    let pool = bench.fleet.db.pool();
    common::prepare_commits(pool).await?;
    idle::lay_in(bench).await?;
    common::stock(pool, bench.shop_id, SKU, 1, bench.effort.size(1_000_000, 50_000)).await?;
    // What every reservation meets later is measured first.
    Ok(vec![
        by_assets(bench).await?,
        by_holds(bench).await?,
        long_open::curve(bench).await?,
        by_jobs(bench).await?,
        by_history(bench).await?,
        by_shops(bench).await?,
    ])
}

async fn by_assets(bench: &Bench<'_>) -> anyhow::Result<Curve> {
    let mut curve = Curve::new("assets", "assets in the category", "reserving one asset");
    for size in ASSETS {
        let assets = bench.effort.size(size, 100);
        bench.say(&format!("{assets} assets"));
        let category = format!("{CATEGORY}-{size}");
        common::assets(bench.fleet.db.pool(), bench.shop_id, &category, assets).await?;
        curve.points.push(point(bench, assets, Wanted::Asset(&category)).await?);
    }
    Ok(curve)
}

async fn by_holds(bench: &Bench<'_>) -> anyhow::Result<Curve> {
    let mut curve = Curve::new("holds", "live holds in the category, of 100,000 assets", "reserving one asset");
    let pool = bench.fleet.db.pool();
    common::assets(pool, bench.shop_id, CATEGORY, bench.effort.size(100_000, 2_000)).await?;
    let mut before = 0;
    for size in HOLDS {
        let holds = bench.effort.size(size, 0);
        bench.say(&format!("{holds} live holds"));
        common::take_assets(pool, bench.shop_id, CATEGORY, (before, holds), false).await?;
        curve.points.push(point(bench, holds, Wanted::Asset(CATEGORY)).await?);
        before = holds;
    }
    Ok(curve)
}

async fn by_jobs(bench: &Bench<'_>) -> anyhow::Result<Curve> {
    let mut curve = Curve::new("jobs", "finished jobs that are kept", "from the POST to reserved");
    let mut before = 0;
    for size in JOBS {
        let jobs = bench.effort.size(size, 0);
        bench.say(&format!("{jobs} finished jobs"));
        sql::finished_jobs(bench.fleet.db.pool(), before, jobs).await?;
        curve.points.push(point(bench, jobs, Wanted::ByHttp).await?);
        before = jobs;
    }
    Ok(curve)
}

async fn by_history(bench: &Bench<'_>) -> anyhow::Result<Curve> {
    let mut curve = Curve::new("history", "orders for the SKU that ended", "reserving one unit");
    let mut before = 0;
    for size in HISTORY {
        let ended = bench.effort.size(size, 0);
        bench.say(&format!("{ended} orders that ended"));
        sql::history(bench.fleet.db.pool(), bench.shop_id, SKU, ended - before).await?;
        curve.points.push(point(bench, ended, Wanted::Unit(SKU)).await?);
        before = ended;
    }
    Ok(curve)
}

async fn by_shops(bench: &Bench<'_>) -> anyhow::Result<Curve> {
    let mut curve =
        Curve::new("shops", "other shops, with ten assets and ten units of the same names each", "reserving one asset");
    let mut before = 0;
    for size in SHOPS {
        let shops = bench.effort.size(size, 0);
        bench.say(&format!("{shops} other shops"));
        sql::shops(bench.fleet.db.pool(), CATEGORY, &format!("{SKU}1"), (before, shops)).await?;
        curve.points.push(point(bench, shops, Wanted::Asset(CATEGORY)).await?);
        before = shops;
    }
    Ok(curve)
}

async fn point(bench: &Bench<'_>, size: i32, wanted: Wanted<'_>) -> anyhow::Result<Point> {
    let runs = bench.effort.size(RUNS, 10);
    let pool = bench.fleet.db.pool();
    let orders = match wanted {
        Wanted::Asset(category) => common::place_assets(pool, bench.shop_id, category, runs).await?,
        Wanted::Unit(prefix) => common::place_stock(pool, bench.shop_id, prefix, 1, runs, 1).await?,
        // Placed below; these are their keys.
        Wanted::ByHttp => (0..runs).map(|_| Uuid::now_v7()).collect(),
    };
    common::checkpoint(pool).await?;
    let combiner = Combiner::start(&bench.fleet.db);
    let http = reqwest::Client::new();
    let (mut times, mut commits) = (Vec::new(), Vec::new());
    for order in orders {
        let began = Instant::now();
        common::bare_commit(pool).await?;
        commits.push(began.elapsed());
        times.push(match wanted {
            Wanted::Asset(_) => assets::reserve(bench, &combiner, order).await?,
            Wanted::Unit(_) => unit(bench, &combiner, order).await?,
            Wanted::ByHttp => idle::order(bench, &http, &order.to_string()).await?,
        });
    }
    let size = usize::try_from(size)?;
    Ok(Point { size, reservation: Figures::of_times(times), commit: Figures::of_times(commits) })
}

async fn unit(bench: &Bench<'_>, combiner: &Combiner, order: Uuid) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let outcome = combiner.run(bench.shop_id, order).await?;
    let took = began.elapsed();
    ensure!(outcome == Outcome::Reserved, "an order came to {outcome:?}");
    Ok(took)
}
