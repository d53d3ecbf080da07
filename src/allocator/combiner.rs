//! Many orders per commit: the jobs that run at once hand their orders in here, and what has gathered while the batch
//! before was on its way is reserved in one transaction.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use super::{Outcome, Refusal, announce, run, sql};
use crate::db::{Batcher, Db, Fault, LOCK_TIMEOUT};
use crate::queue::catalogue::REFILL;

/// What the quick way came to for one order.
#[derive(Debug)]
enum Quick {
    Reserved,
    Refused(Refusal),
    Decided,
}

/// Takes orders in and reserves what has gathered. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Combiner {
    db: Db,
    batcher: Batcher<Uuid, Quick>,
}

impl Combiner {
    /// Begins to combine; ends when the last clone is dropped. Must be called on a Tokio runtime.
    #[must_use]
    pub fn start(db: &Db) -> Self {
        let notifier = db.notifier().clone();
        let work = Arc::new(move |lanes, shop_id, orders: Vec<Uuid>| {
            let notifier = notifier.clone();
            let batch: futures_util::future::BoxFuture<'static, _> = Box::pin(async move {
                let done = sql::reserve_batch(&lanes, shop_id, &orders).await?;
                if done.iter().any(|done| done.woke) {
                    notifier.job(REFILL.name);
                }
                let mut done: HashMap<Uuid, sql::Reserved> = done.into_iter().map(|done| (done.order, done)).collect();
                let quick = |order: &Uuid| {
                    let done = done.remove(order)?;
                    match (done.outcome.as_str(), done.refusal) {
                        ("reserved", _) => Some(Quick::Reserved),
                        ("decided", _) => Some(Quick::Decided),
                        // What is committed and cannot be read is found decided by the careful way.
                        ("refused", Some(refusal)) => serde_json::from_value(refusal).ok().map(Quick::Refused),
                        _ => None,
                    }
                };
                Ok(orders.iter().map(quick).collect())
            });
            batch
        });
        Self { db: db.clone(), batcher: Batcher::start(db, "reserve", LOCK_TIMEOUT, work) }
    }

    /// How many orders have shared a transaction on average; 1 before the first.
    #[must_use]
    pub fn mean_batch(&self) -> f64 {
        self.batcher.mean_batch()
    }

    /// Reserves a placed order, or refuses it: as [`run`], and in company where there is any.
    ///
    /// Safe to repeat, as [`run`] is.
    ///
    /// # Errors
    /// Faults of the database.
    pub async fn run(&self, shop_id: i32, order: Uuid) -> Result<Outcome, Fault> {
        let outcome = match self.batcher.ask(shop_id, order).await {
            Some(Quick::Reserved) => Outcome::Reserved,
            Some(Quick::Refused(refusal)) => Outcome::Refused(refusal),
            Some(Quick::Decided) => Outcome::AlreadyDecided,
            None => return run(&self.db, shop_id, order).await,
        };
        announce(&self.db, order, &outcome);
        Ok(outcome)
    }
}
