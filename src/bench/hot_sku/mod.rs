//! Sixty-four buyers at once on one SKU with 100,000 units, beside what such a shop is usually built on: one
//! counter row, and a pool that is locked whole. The floor is a bare insert of the reservation's row.

mod sql;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Barrier;
use uuid::Uuid;

use super::{Fleet, Ratio, Scenario, Throughput};
use crate::allocator::{self, Combiner, Outcome};
use crate::db::Db;
use crate::shops::{self, MAIN};

const SKU: &str = "bench-hot";
const UNITS: i32 = 100_000;
const BUYERS: usize = 64;
const ROUNDS: usize = 3;
/// How long each side buys in each round, unless its orders run out before.
const ROUND: Duration = Duration::from_secs(5);
/// Orders that are placed for each side of each round, before it is measured: more than are bought.
const ORDERS: i32 = 20_000;

/// Who sells. Each takes the same orders and leaves the same rows, but for the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// As a worker does it: jobs that run at once share their commits.
    Ours,
    /// Ours without that: a transaction for each order.
    Alone,
    /// One row counts what is left, and is updated in the transaction that writes the reservation.
    Counter,
    /// A pool of unit rows, of which a buyer locks all that are free before it takes one.
    WholePool,
    /// The reservation's row and its commit, and nothing else.
    Floor,
}

impl Side {
    const ALL: [Self; 5] = [Self::Ours, Self::Alone, Self::Counter, Self::WholePool, Self::Floor];
}

/// What one side did in all rounds.
#[derive(Default)]
struct Tally {
    times: Vec<Duration>,
    /// Of each round, in reservations per second.
    rates: Vec<f64>,
}

pub(super) async fn run(fleet: &Fleet, progress: &impl Fn(&str)) -> anyhow::Result<Vec<Ratio>> {
    let shop = shops::find(&fleet.db, MAIN).await?.context("there is no shop main")?;
    let db = Db::connect_with(fleet.db.options().clone(), u32::try_from(BUYERS)?).await?;
    progress("hot-sku: 100,000 units of one SKU, for each side");
    sql::stock(db.pool(), shop.id, SKU, UNITS).await?;
    sql::baselines(db.pool(), UNITS).await?;
    let mut tallies = Side::ALL.map(|_| Tally::default());
    for round in 1..=ROUNDS {
        for (side, tally) in Side::ALL.into_iter().zip(&mut tallies) {
            let orders = sql::place(db.pool(), shop.id, SKU, ORDERS).await?;
            progress(&format!("hot-sku: round {round} of {ROUNDS}: {BUYERS} buyers, {side:?}"));
            let (took, times) = buy(&db, shop.id, side, orders).await?;
            tally.rates.push(times.len() as f64 / took.as_secs_f64());
            tally.times.extend(times);
        }
    }
    db.pool().close().await;
    let [ours, alone, counter, whole_pool, floor] = tallies.map(|t| Throughput::of(t.rates, t.times));
    Ok(vec![
        Ratio::of_rates(Scenario::HotSku, "to one counter row", &ours, &counter),
        Ratio::of_rates(Scenario::HotSku, "to the whole-pool lock", &ours, &whole_pool),
        Ratio::of_rates(Scenario::HotSku, "to the floor", &ours, &floor),
        Ratio::of_rates(Scenario::HotSku, "to the floor, one order per commit", &alone, &floor),
        Ratio::of_tail(Scenario::HotSku, "99th percentile to median", &ours),
    ])
}

/// Every buyer takes one order after the other until the round is over. Gives how long that took, and the
/// time of each reservation.
async fn buy(db: &Db, shop_id: i32, side: Side, orders: Vec<Uuid>) -> anyhow::Result<(Duration, Vec<Duration>)> {
    let orders = Arc::new(orders);
    let next = Arc::new(AtomicUsize::new(0));
    let start = Arc::new(Barrier::new(BUYERS + 1));
    let combiner = Combiner::start(db);
    let mut buyers = Vec::new();
    for _ in 0..BUYERS {
        // The baselines have a session each, as bare as can be; ours pays for its pool.
        let seller = match side {
            Side::Ours => Seller::Combiner(combiner.clone()),
            Side::Alone => Seller::Allocator(db.clone()),
            Side::Counter | Side::WholePool | Side::Floor => {
                Seller::Baseline(side, PgConnection::connect_with(db.options()).await?)
            }
        };
        let (orders, next, start) = (orders.clone(), next.clone(), start.clone());
        buyers.push(tokio::spawn(async move { one_buyer(shop_id, seller, &orders, &next, &start).await }));
    }
    start.wait().await;
    let began = Instant::now();
    let mut times = Vec::new();
    let mut failed = None;
    for buyer in buyers {
        match buyer.await? {
            Ok(mine) => times.extend(mine),
            Err(error) => failed = Some(error),
        }
    }
    let took = began.elapsed();
    if let Some(error) = failed {
        return Err(error);
    }
    ensure!(!times.is_empty(), "{side:?} reserved nothing");
    Ok((took, times))
}

/// What a buyer buys by.
enum Seller {
    Combiner(Combiner),
    Allocator(Db),
    Baseline(Side, PgConnection),
}

async fn one_buyer(
    shop_id: i32,
    mut seller: Seller,
    orders: &[Uuid],
    next: &AtomicUsize,
    start: &Barrier,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    start.wait().await;
    let began = Instant::now();
    while began.elapsed() < ROUND {
        let Some(order) = orders.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
        let at = Instant::now();
        loop {
            if reserve(&mut seller, shop_id, *order).await? {
                times.push(at.elapsed());
                break;
            }
            // Whoever finds all of the pool locked looks again, as an application does.
            if began.elapsed() >= ROUND {
                break;
            }
        }
    }
    if let Seller::Baseline(_, session) = seller {
        session.close().await?;
    }
    Ok(times)
}

/// Reserves one order; false where a baseline found nothing that it could lock.
async fn reserve(seller: &mut Seller, shop_id: i32, order: Uuid) -> anyhow::Result<bool> {
    let outcome = match seller {
        Seller::Combiner(combiner) => combiner.run(shop_id, order).await?,
        Seller::Allocator(db) => allocator::run(db, shop_id, order).await?,
        Seller::Baseline(Side::Counter, session) => return Ok(sql::by_counter(session, shop_id, order).await?),
        Seller::Baseline(Side::WholePool, session) => return Ok(sql::by_whole_pool(session, shop_id, order).await?),
        Seller::Baseline(_, session) => return Ok(sql::bare(session, shop_id, SKU, order).await?),
    };
    ensure!(outcome == Outcome::Reserved, "a buyer was told {outcome:?} with units left");
    Ok(true)
}
