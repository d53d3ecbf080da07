//! Sixty-four buyers at once on one SKU, beside what such a shop is usually built on: one counter row, and a pool
//! that is locked whole. The floor is a bare insert of the reservation's row.

mod sql;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;
use uuid::Uuid;

use super::baselines::Redis;
use super::drive::{self, Act, Contest, Did, Party, Session};
use super::sql as common;
use super::{Bench, Ratio, Scenario};
use crate::allocator::{self, Combiner, Outcome};

/// The prefix of its name; it is the first and only one.
const SKU: &str = "bench-hot-";
const UNITS: usize = 1_000_000;
const TO_REDIS: &str = "to redis and a row";
pub(super) const BUYERS: usize = 64;
/// Orders that are placed for each side of each round, before it is measured: more than are bought.
const ORDERS: usize = 30_000;

/// Who sells. Each takes the same orders and leaves the same rows, but for the floors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// As a worker does it: jobs that run at once share their commits.
    Ours,
    /// Ours without that: a transaction for each order.
    Alone,
    /// One row counts what is left, and is updated in the transaction that writes the reservation.
    Counter,
    /// A pool of unit rows, of which a buyer locks all that are free before it takes one.
    WholeSet,
    /// A counter in Redis, and then the reservation's row and its commit.
    Redis,
    /// The reservation's row and its commit, and nothing else.
    Floor,
    /// The same in batches of the size that ours reached, as many of them at once as buyers make full.
    BatchedFloor,
}

struct HotSku {
    redis: Option<Redis>,
    orders: i32,
    /// The size of ours' batches in its last round, rounded.
    batch: Arc<AtomicUsize>,
    /// The combiner of the round that runs.
    combiner: std::sync::Mutex<Option<Combiner>>,
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let mut sides = vec![Side::Ours, Side::Alone, Side::Counter, Side::WholeSet, Side::Floor, Side::BatchedFloor];
    let units = bench.effort.size(UNITS, 20_000);
    bench.say(&format!("{units} units of one SKU"));
    common::stock(bench.fleet.db.pool(), bench.shop_id, SKU, 1, units).await?;
    sql::baselines(bench.fleet.db.pool(), units).await?;
    let orders = bench.effort.size(ORDERS, 2_000);
    let redis = Redis::start(bench, TO_REDIS, units).await?;
    sides.extend(redis.is_some().then_some(Side::Redis));
    let contest = HotSku { redis, orders, batch: Arc::new(AtomicUsize::new(BUYERS / 2)), combiner: None.into() };
    let tallies = drive::alternate(bench, &contest, &sides).await?;
    ensure!(common::oversold(bench.fleet.db.pool(), bench.shop_id, SKU).await? == 0, "more was sold than there is");
    bench.say(&format!("ours reached batches of {}", contest.batch.load(Ordering::Relaxed)));
    let [ours, alone, counter, whole_set, floor, batched, redis @ ..] = &tallies[..] else {
        anyhow::bail!("a side did not play");
    };
    let ratio = |name, other| Ratio::of_rates(Scenario::HotSku, name, ours, other);
    let mut ratios = vec![
        ratio("to floor", floor),
        ratio("to batched floor", batched),
        ratio("to counter row", counter),
        ratio("to whole set lock", whole_set),
        ratio("to one order per commit", alone),
    ];
    ratios.extend(redis.iter().map(|redis| ratio(TO_REDIS, redis)));
    Ok(ratios)
}

impl Contest for HotSku {
    type Side = Side;

    async fn party(&self, bench: &Bench<'_>, side: Side) -> anyhow::Result<Party> {
        let (db, shop_id) = (&bench.fleet.db, bench.shop_id);
        let placed = common::place_stock(db.pool(), shop_id, SKU, 1, self.orders, 1).await?;
        sql::refill(db.pool()).await?;
        match side {
            Side::Ours => {
                let reserved = |outcome: &Outcome| *outcome == Outcome::Reserved;
                let (party, combiner) = drive::combined(bench, placed, BUYERS, reserved).await?;
                *self.combiner.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(combiner);
                Ok(party)
            }
            Side::Alone => {
                let db = drive::connected(bench, BUYERS).await?;
                let orders = Arc::new(placed);
                let client = |_| -> Act {
                    let (db, orders) = (db.clone(), Arc::clone(&orders));
                    Box::new(move |n| {
                        let (db, order) = (db.clone(), orders[n]);
                        Box::pin(async move {
                            let outcome = allocator::run(&db, shop_id, order).await?;
                            ensure!(outcome == Outcome::Reserved, "a buyer was told {outcome:?} with units left");
                            Ok(Did::Done(1))
                        })
                    })
                };
                let clients = (0..BUYERS).map(client).collect();
                Ok(Party { clients, operations: orders.len(), orders, db: Some(db) })
            }
            Side::Counter | Side::WholeSet | Side::Floor | Side::Redis => {
                baseline(bench, side, placed, BUYERS, 1, self.redis.clone()).await
            }
            Side::BatchedFloor => {
                let batch = self.batch.load(Ordering::Relaxed).max(1);
                baseline(bench, side, placed, BUYERS.div_ceil(batch), batch, None).await
            }
        }
    }

    async fn check(&self, bench: &Bench<'_>, side: Side, orders: &[Uuid], done: usize) -> anyhow::Result<()> {
        if let Some(combiner) = self.combiner.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
            self.batch.store(combiner.mean_batch().round() as usize, Ordering::Relaxed);
        }
        let pool = bench.fleet.db.pool();
        let done = i64::try_from(done)?;
        let found = common::standing(pool, bench.shop_id, orders).await?;
        let reserved = match side {
            Side::Ours | Side::Alone | Side::Counter | Side::WholeSet => done,
            // These write holds and nothing else.
            Side::Redis | Side::Floor | Side::BatchedFloor => 0,
        };
        ensure!((found.reserved, found.holds) == (reserved, done), "{done} were done, and there are {found:?}");
        Ok(())
    }
}

/// The baselines have a session for each buyer, as bare as can be, and take `batch` orders at a time.
async fn baseline(
    bench: &Bench<'_>,
    side: Side,
    placed: Vec<Uuid>,
    buyers: usize,
    batch: usize,
    redis: Option<Redis>,
) -> anyhow::Result<Party> {
    let (orders, shop_id) = (Arc::new(placed), bench.shop_id);
    let client = |session: Session| -> Act {
        let (orders, redis) = (Arc::clone(&orders), redis.clone());
        Box::new(move |n| {
            let (session, orders, redis) = (Arc::clone(&session), Arc::clone(&orders), redis.clone());
            Box::pin(async move {
                if let Some(redis) = redis {
                    ensure!(redis.take().await?, "the counter says that nothing is left");
                }
                let mut session = session.lock().await;
                let mine = &orders[n * batch..(n + 1) * batch];
                Ok(match side {
                    Side::Counter => match sql::by_counter(&mut session, shop_id, mine[0]).await? {
                        true => Did::Done(1),
                        false => Did::Refused,
                    },
                    Side::WholeSet => match sql::by_whole_set(&mut session, shop_id, mine[0]).await? {
                        true => Did::Done(1),
                        // Whoever finds all of it locked looks again, as an application does.
                        false => Did::Again,
                    },
                    Side::Redis | Side::Floor | Side::BatchedFloor | Side::Ours | Side::Alone => {
                        Did::Done(common::bare_reservation(&mut session, shop_id, mine).await?)
                    }
                })
            })
        })
    };
    let sessions = drive::sessions(bench.fleet.db.options(), buyers).await?;
    let clients = sessions.into_iter().map(client).collect();
    Ok(Party { clients, operations: orders.len() / batch, orders, db: None })
}
