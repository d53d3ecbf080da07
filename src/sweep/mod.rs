//! Housekeeping: lapsed holds become expired, and what lost its job gets a new one. Works from the state
//! of the database, never from ticks: a run that was missed costs nothing but time, and one too many
//! finds nothing to do.

mod sql;

use crate::db::{Db, Fault, Verdict};
use crate::queue::catalogue::{CONVERT, RESERVE};
use crate::reservations;

/// How many holds one transaction expires: few, so that no convert or reserve waits behind it for long.
pub const BATCH: i64 = 200;
/// A bound on one run, which ends it even where new holds lapse as fast as old ones are swept.
const MOST_BATCHES: u32 = 10_000;

/// Expires every lapsed hold of every shop, in batches that pass over orders which somebody is deciding
/// right now. Gives how many orders were expired. Nothing turns it off.
///
/// Safe to repeat, also at once on several machines: an order is expired once.
///
/// # Errors
/// Faults of the database; what was swept before stays swept.
pub async fn sweep(db: &Db) -> Result<u64, Fault> {
    let mut expired = 0;
    for shop_id in sql::shops(db.pool()).await? {
        for _ in 0..MOST_BATCHES {
            let batch = db
                .transaction("sweep", |mut tx| {
                    Box::pin(async move {
                        let lapsed = reservations::lapsed(&mut tx, shop_id, BATCH).await?;
                        Ok(Verdict::Commit(reservations::expire(&mut tx, shop_id, &lapsed, "sweep").await?.len()))
                    })
                })
                .await?;
            if batch == 0 {
                break;
            }
            expired += batch as u64;
        }
    }
    if expired > 0 {
        tracing::info!(expired, "lapsed holds were swept");
    }
    Ok(expired)
}

/// What [`requeue`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requeued {
    /// Placed orders that got a new reserve job.
    pub orders: i64,
    /// Payment events that got a new convert job.
    pub payments: i64,
}

/// Gives a new job to every placed order and every applicable payment event whose job was lost. A dead
/// letter counts as lost once it is a quarter of an hour old: whatever killed it may have been mended.
///
/// Safe to repeat: one key is one job.
///
/// # Errors
/// Faults of the database only.
pub async fn requeue(db: &Db) -> Result<Requeued, Fault> {
    let mut total = Requeued::default();
    for shop_id in sql::shops(db.pool()).await? {
        total.orders += sql::requeue_orders(db.pool(), shop_id, RESERVE.max_attempts.into(), BATCH).await?;
        total.payments += sql::requeue_payments(db.pool(), shop_id, CONVERT.max_attempts.into(), BATCH).await?;
    }
    if total.orders > 0 {
        db.notifier().job(RESERVE.name);
    }
    if total.payments > 0 {
        db.notifier().job(CONVERT.name);
    }
    if total != Requeued::default() {
        tracing::warn!(orders = total.orders, payments = total.payments, "work without a job got one");
    }
    Ok(total)
}
