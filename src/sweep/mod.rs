//! Housekeeping: lapsed holds become expired, what lost its job gets a new one, the ledger is rolled up. Works from the state
//! of the database, never from ticks: a run that was missed costs nothing but time, and one too many
//! finds nothing to do.

mod sql;

use crate::allocator::waiting;
use crate::db::{Db, Fault, Verdict};
use crate::queue::catalogue::{CONVERT, REFILL, RESERVE};
use crate::reservations;
use crate::stock::ledger;

/// How many holds one transaction expires: few, so that no convert or reserve waits behind it for long.
pub const BATCH: i64 = 200;
/// A bound on one run, which ends it even where new holds lapse as fast as old ones are swept.
const MOST_BATCHES: u32 = 10_000;
/// The same bound for what gets a new job: the next run, a minute later, goes on.
const MOST_REQUEUE_BATCHES: u32 = 100;
/// How many pools one statement looks at, and how many of those one run makes for a shop. The next run goes on
/// where this one ended: buyers wake the pools they draw on, so this is for what nobody woke.
const POOL_BATCH: i32 = 1_000;
const MOST_POOL_BATCHES: u32 = 5;
/// How many waiting orders one run wakes, and how many lines it takes out of the index of those who wait.
const MOST_WOKEN: i32 = 200;
const MOST_FORGOTTEN: i32 = 10_000;

/// Expires every lapsed hold of every shop, in batches that pass over orders which somebody is deciding
/// right now. Gives how many orders were expired. Nothing turns it off.
///
/// Safe to repeat, also at once on several machines: an order is expired once.
///
/// # Errors
/// Faults of the database; what was swept before stays swept, and one shop's fault does not end the others' sweep:
/// the first fault is given at the end.
pub async fn sweep(db: &Db) -> Result<u64, Fault> {
    let (mut expired, mut first_fault) = (0, Ok(()));
    for shop_id in sql::shops(db.pool()).await? {
        let swept = sweep_shop(db, shop_id, &mut expired).await;
        keep_first(&mut first_fault, swept, shop_id);
    }
    if expired > 0 {
        tracing::info!(expired, "lapsed holds were swept");
    }
    first_fault.map(|()| expired)
}

async fn sweep_shop(db: &Db, shop_id: i32, expired: &mut u64) -> Result<(), Fault> {
    for _ in 0..MOST_BATCHES {
        let (batch, served) = db
            .transaction("sweep", |mut tx| {
                Box::pin(async move {
                    let lapsed = reservations::lapsed(&mut tx, shop_id, BATCH).await?;
                    let anyone_waits = waiting::enter(&mut tx, shop_id).await?;
                    let units = reservations::Units::GiveBack;
                    let ended = reservations::expire(&mut tx, shop_id, &lapsed, "sweep", units).await?;
                    let mut served = Vec::new();
                    if anyone_waits && !ended.is_empty() {
                        served = waiting::serve_ended(&mut tx, shop_id, &ended).await?;
                    }
                    Ok(Verdict::Commit((ended.len(), served)))
                })
            })
            .await?;
        waiting::tell(db, &served);
        if batch == 0 {
            break;
        }
        *expired += batch as u64;
    }
    Ok(())
}

/// Every fault is logged where its shop is known; the first is what the run comes to.
fn keep_first(first: &mut Result<(), Fault>, result: Result<(), Fault>, shop_id: i32) {
    if let Err(fault) = result {
        tracing::error!(shop = shop_id, %fault, "housekeeping failed for a shop; the others go on");
        if first.is_ok() {
            *first = Err(fault);
        }
    }
}

/// What [`requeue`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requeued {
    /// Placed orders that got a new reserve job.
    pub orders: i64,
    /// Payment events that got a new convert job.
    pub payments: i64,
    /// Pools that are low, or out of bounds, and got a refill job.
    pub pools: i64,
    /// Waiting orders that look as if they could be filled, and got a reserve job: what they wait for came free
    /// where nobody could serve them at once, or its time has come (`available_from`).
    pub woken: i64,
}

/// Gives a new job to every placed order and every applicable payment event whose job was lost, to pools that
/// need a refill and that nobody woke, and to orders that wait for what stands free. A dead
/// letter counts as lost once it is a quarter of an hour old: whatever killed it may have been mended.
///
/// Safe to repeat: one key is one job.
///
/// # Errors
/// Faults of the database; one shop's fault does not keep the others waiting: the first is given at the end.
pub async fn requeue(db: &Db) -> Result<Requeued, Fault> {
    let (mut total, mut first_fault) = (Requeued::default(), Ok(()));
    for shop_id in sql::shops(db.pool()).await? {
        let done = requeue_shop(db, shop_id, &mut total).await;
        keep_first(&mut first_fault, done, shop_id);
    }
    if total.orders > 0 || total.woken > 0 {
        db.notifier().job(RESERVE.name);
    }
    if total.payments > 0 {
        db.notifier().job(CONVERT.name);
    }
    if total.pools > 0 {
        db.notifier().job(REFILL.name);
        tracing::debug!(pools = total.pools, "pools that nobody woke are refilled");
    }
    if total.orders > 0 || total.payments > 0 {
        tracing::warn!(orders = total.orders, payments = total.payments, "work without a job got one");
    }
    first_fault.map(|()| total)
}

async fn requeue_shop(db: &Db, shop_id: i32, total: &mut Requeued) -> Result<(), Fault> {
    for _ in 0..MOST_REQUEUE_BATCHES {
        let orders = sql::requeue_orders(db.pool(), shop_id, RESERVE.max_attempts.into(), BATCH).await?;
        let payments = sql::requeue_payments(db.pool(), shop_id, CONVERT.max_attempts.into(), BATCH).await?;
        total.orders += orders;
        total.payments += payments;
        if orders == 0 && payments == 0 {
            break;
        }
    }
    total.pools += wake_pools(db, shop_id).await?;
    total.woken += sql::wake_waiting(db.pool(), shop_id, MOST_WOKEN).await?;
    sql::forget_waiting(db.pool(), shop_id, MOST_FORGOTTEN).await?;
    Ok(())
}

async fn wake_pools(db: &Db, shop_id: i32) -> Result<i64, Fault> {
    let mut woken = 0;
    for _ in 0..MOST_POOL_BATCHES {
        let batch = sql::wake_pools(db.pool(), shop_id, POOL_BATCH).await?;
        woken += batch.woken;
        // The way round has come to its end.
        if batch.looked < i64::from(POOL_BATCH) {
            break;
        }
    }
    Ok(woken)
}

/// Rolls up the ledgers of every shop. Gives how many movements that were.
///
/// Safe to repeat, also at once: see [`ledger::roll_up`].
///
/// # Errors
/// Faults of the database; what was rolled up before stays so.
pub async fn roll_up(db: &Db) -> Result<u64, Fault> {
    let mut rolled = 0;
    for shop_id in sql::shops(db.pool()).await? {
        rolled += ledger::roll_up(db, shop_id).await?;
    }
    if rolled > 0 {
        tracing::debug!(rolled, "movements of stock were rolled up");
    }
    Ok(rolled)
}
