//! Many askers, one statement: what is asked while the batch before is on its way goes to the database together, in
//! one commit. Who asks alone is a batch of one, so an idle system waits for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{ACQUIRE_TIMEOUT, Db, Fault};

/// The most that one statement is asked: above it the fsync is cheap enough for each, and locks are held longer.
const MOST_PER_BATCH: usize = 64;
/// How many batches are on their way at once: while one waits for its commit, the next is worked on.
const BATCHES_AT_ONCE: u32 = 2;
/// How many may wait; then whoever asks waits to be let in.
const MOST_WAITING: usize = 4_096;

/// What puts a batch of one shop to the database. Gives an answer for each question, in their order; none where the
/// question needs a careful way of its own.
pub type Work<Q, A> =
    Arc<dyn Fn(PgPool, i32, Vec<Q>) -> BoxFuture<'static, Result<Vec<Option<A>>, Fault>> + Send + Sync>;

struct Ask<Q, A> {
    shop_id: i32,
    question: Q,
    answer: oneshot::Sender<Option<A>>,
}

/// Takes questions in, and answers what has gathered. Cheap to clone; ends when the last clone is dropped.
#[derive(Debug)]
pub struct Batcher<Q, A> {
    inbox: mpsc::Sender<Ask<Q, A>>,
    gathered: Arc<Gathered>,
}

impl<Q, A> Clone for Batcher<Q, A> {
    fn clone(&self) -> Self {
        Self { inbox: self.inbox.clone(), gathered: Arc::clone(&self.gathered) }
    }
}

/// How much has gathered so far.
#[derive(Debug, Default)]
struct Gathered {
    batches: AtomicU64,
    questions: AtomicU64,
}

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    /// Begins to take in what `name` is asked for; a batch waits for one lock no longer than `lock_timeout`, as all of
    /// it waits. Must be called on a Tokio runtime.
    #[must_use]
    pub fn start(db: &Db, name: &'static str, lock_timeout: Duration, work: Work<Q, A>) -> Self {
        let (inbox, asks) = mpsc::channel(MOST_WAITING);
        let asks = Arc::new(Mutex::new(asks));
        let gathered = Arc::new(Gathered::default());
        // Connections of their own: the same few serve every batch, so that they keep its plans; and no batch waits
        // for a connection that one asker has.
        let lanes = PgPoolOptions::new()
            .max_connections(BATCHES_AT_ONCE)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(db.options().clone().options([
                ("lock_timeout", lock_timeout.as_millis().to_string()),
                // A plan for any length of its arrays looks dearer than one for the few that just came, so the server
                // would plan each batch anew; that took half of a batch's time.
                ("plan_cache_mode", "force_generic_plan".to_owned()),
            ]));
        for _ in 0..BATCHES_AT_ONCE {
            let lane = Lane { name, work: Arc::clone(&work), pool: lanes.clone(), gathered: Arc::clone(&gathered) };
            tokio::spawn(lane.serve(Arc::clone(&asks)));
        }
        Self { inbox, gathered }
    }

    /// The answer to one question, given together with others' where there are any. None where it needs the careful
    /// way: the batch failed, and each must meet its own fault; or this question was left out of it.
    pub async fn ask(&self, shop_id: i32, question: Q) -> Option<A> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send(Ask { shop_id, question, answer }).await.ok()?;
        answered.await.ok()?
    }

    /// How many have shared a statement on average; 1 before the first.
    #[must_use]
    pub fn mean_batch(&self) -> f64 {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        (read(&self.gathered.questions) / read(&self.gathered.batches).max(1.0)).max(1.0)
    }
}

struct Lane<Q, A> {
    name: &'static str,
    work: Work<Q, A>,
    pool: PgPool,
    gathered: Arc<Gathered>,
}

impl<Q: Send, A: Send> Lane<Q, A> {
    async fn serve(self, asks: Arc<Mutex<mpsc::Receiver<Ask<Q, A>>>>) {
        let mut batch = Vec::new();
        while asks.lock().await.recv_many(&mut batch, MOST_PER_BATCH).await > 0 {
            // No transaction spans shops.
            while let Some(shop_id) = batch.first().map(|ask| ask.shop_id) {
                let (mine, others): (Vec<_>, Vec<_>) = batch.drain(..).partition(|ask| ask.shop_id == shop_id);
                batch = others;
                self.answer(shop_id, mine).await;
            }
            // Those who were just answered run first: whoever of them asks again is in the next batch with it.
            // Where nobody does, this costs nothing.
            tokio::task::yield_now().await;
        }
    }

    async fn answer(&self, shop_id: i32, asks: Vec<Ask<Q, A>>) {
        let count = asks.len();
        self.gathered.batches.fetch_add(1, Ordering::Relaxed);
        self.gathered.questions.fetch_add(count as u64, Ordering::Relaxed);
        let (questions, tell): (Vec<_>, Vec<_>) = asks.into_iter().map(|ask| (ask.question, ask.answer)).unzip();
        let answers = (self.work)(self.pool.clone(), shop_id, questions).await.unwrap_or_else(|fault| {
            tracing::warn!(%fault, batch = self.name, count, "a batch failed; it is split, and each goes its own way");
            Vec::new()
        });
        // Who has given up is not told; what was done for him stays.
        let mut answers = answers.into_iter();
        for tell in tell {
            let _ = tell.send(answers.next().flatten());
        }
    }
}
