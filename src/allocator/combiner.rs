//! Many orders per commit: the jobs that run at once hand their orders in here, and what has gathered while
//! the batch before was on its way is reserved in one transaction. An order that comes alone is a batch of
//! one, so an idle system waits for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::{Mutex, mpsc, oneshot};
use uuid::Uuid;

use super::{Outcome, announce, run, sql};
use crate::db::{ACQUIRE_TIMEOUT, Db, Fault};
use crate::queue::catalogue::REFILL;

/// The most orders of one transaction: above it the fsync is cheap enough per order, and locks are held
/// longer.
const MOST_PER_BATCH: usize = 64;
/// How many batches are on their way at once: while one waits for its commit, the next is worked on.
const BATCHES_AT_ONCE: u32 = 2;
/// How many orders may wait; the worker's own concurrency is far below.
const MOST_WAITING: usize = 4_096;

struct Ask {
    shop_id: i32,
    order: Uuid,
    answer: oneshot::Sender<Quick>,
}

/// What the quick way came to for one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quick {
    Reserved,
    Decided,
    /// It needs the careful way.
    Apart,
}

/// Takes orders in and reserves what has gathered. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Combiner {
    db: Db,
    inbox: mpsc::Sender<Ask>,
    gathered: Arc<Gathered>,
}

/// How much has gathered so far.
#[derive(Debug, Default)]
struct Gathered {
    batches: AtomicU64,
    orders: AtomicU64,
}

impl Combiner {
    /// Begins to combine; ends when the last clone is dropped. Must be called on a Tokio runtime.
    #[must_use]
    pub fn start(db: &Db) -> Self {
        let (inbox, asks) = mpsc::channel(MOST_WAITING);
        let asks = Arc::new(Mutex::new(asks));
        let gathered = Arc::new(Gathered::default());
        // Connections of their own: the same few serve every batch, so that they keep its plans; and no batch
        // waits for a connection that one order has.
        let lanes = PgPoolOptions::new()
            .max_connections(BATCHES_AT_ONCE)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(db.options().clone());
        for _ in 0..BATCHES_AT_ONCE {
            tokio::spawn(combine(db.clone(), lanes.clone(), Arc::clone(&asks), Arc::clone(&gathered)));
        }
        Self { db: db.clone(), inbox, gathered }
    }

    /// How many orders have shared a transaction on average; 1 before the first.
    #[must_use]
    pub fn mean_batch(&self) -> f64 {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        (read(&self.gathered.orders) / read(&self.gathered.batches).max(1.0)).max(1.0)
    }

    /// Reserves a placed order, or refuses it: as [`run`], and in company where there is any.
    ///
    /// Safe to repeat, as [`run`] is.
    ///
    /// # Errors
    /// Faults of the database.
    pub async fn run(&self, shop_id: i32, order: Uuid) -> Result<Outcome, Fault> {
        let (answer, answered) = oneshot::channel();
        // Where the combiner is gone or gave no answer, the careful way gives one.
        let quick = match self.inbox.send(Ask { shop_id, order, answer }).await {
            Ok(()) => answered.await.unwrap_or(Quick::Apart),
            Err(_) => Quick::Apart,
        };
        let outcome = match quick {
            Quick::Reserved => Outcome::Reserved,
            Quick::Decided => Outcome::AlreadyDecided,
            Quick::Apart => return run(&self.db, shop_id, order).await,
        };
        announce(&self.db, order, &outcome);
        Ok(outcome)
    }
}

async fn combine(db: Db, lanes: PgPool, asks: Arc<Mutex<mpsc::Receiver<Ask>>>, gathered: Arc<Gathered>) {
    let mut batch = Vec::new();
    while asks.lock().await.recv_many(&mut batch, MOST_PER_BATCH).await > 0 {
        // No transaction spans shops.
        while let Some(shop_id) = batch.first().map(|ask| ask.shop_id) {
            let (mine, others): (Vec<_>, Vec<_>) = batch.drain(..).partition(|ask| ask.shop_id == shop_id);
            batch = others;
            gathered.batches.fetch_add(1, Ordering::Relaxed);
            gathered.orders.fetch_add(mine.len() as u64, Ordering::Relaxed);
            reserve(&db, &lanes, shop_id, mine).await;
        }
        // Those who were just answered run first: whoever of them has another order is in the next batch with
        // it. Where nobody has, this costs nothing.
        tokio::task::yield_now().await;
    }
}

async fn reserve(db: &Db, lanes: &PgPool, shop_id: i32, asks: Vec<Ask>) {
    let orders: Vec<Uuid> = asks.iter().map(|ask| ask.order).collect();
    let outcomes = sql::reserve_batch(lanes, shop_id, &orders).await.unwrap_or_else(|fault| {
        // A batch that fails as a whole is split: each order goes its own way, and meets its own fault.
        tracing::warn!(%fault, orders = orders.len(), "a batch of orders failed; they are reserved one by one");
        Vec::new()
    });
    if outcomes.iter().any(|done| done.woke) {
        db.notifier().job(REFILL.name);
    }
    for ask in asks {
        let quick = match outcomes.iter().find(|done| done.order == ask.order).map(|done| done.outcome.as_str()) {
            Some("reserved") => Quick::Reserved,
            Some("decided") => Quick::Decided,
            _ => Quick::Apart,
        };
        // A caller that has given up is not told; its order stays as it is.
        let _ = ask.answer.send(quick);
    }
}
