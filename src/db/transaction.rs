//! The one place where transactions begin, are retried and end.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rand::Rng as _;
use sqlx::{PgConnection, Postgres, Transaction};

use super::{Db, Fault, sql};

/// How often a transaction is run before a serialization failure or deadlock reaches its caller.
const MOST_RUNS: u32 = 6;

/// How a transaction that worked shall end. A refusal may keep what it wrote or undo it: that is the
/// transaction's own decision, not an error.
#[derive(Debug)]
pub enum Verdict<T> {
    /// Keep what was written.
    Commit(T),
    /// Undo what was written, and answer all the same.
    Rollback(T),
}

/// The connection of a running transaction. `'env` is what the body borrows from its caller, which
/// outlives each run `'t`: an async closure would need no such type, but its future is not `Send` in
/// the eyes of today's compiler.
#[derive(Debug)]
pub struct Tx<'t, 'env: 't> {
    conn: &'t mut PgConnection,
    env: PhantomData<&'env ()>,
}

impl Deref for Tx<'_, '_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.conn
    }
}

impl DerefMut for Tx<'_, '_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.conn
    }
}

impl Db {
    /// Runs `body` in one READ COMMITTED transaction called `name`, and again from its start when the
    /// server reports a serialization failure (40001) or a deadlock (40P01), at most six
    /// times with jitter between. `body` must therefore be repeatable.
    ///
    /// ```text
    /// db.transaction("extend", |mut tx| Box::pin(async move { … Ok(Verdict::Commit(answer)) })).await
    /// ```
    ///
    /// # Errors
    /// What `body` returned, or what the server answered to begin and commit. An error always rolls back.
    pub async fn transaction<'env, T, F>(&self, name: &'static str, body: F) -> Result<T, Fault>
    where
        F: for<'t> Fn(Tx<'t, 'env>) -> BoxFuture<'t, Result<Verdict<T>, Fault>>,
    {
        let mut run = 1;
        loop {
            match self.run_once(name, &body).await {
                Err(fault) if fault.is_retryable() && run < MOST_RUNS => {
                    tracing::debug!(transaction = name, run, %fault, "transaction is run again");
                    metrics::counter!("onehold_transaction_retries_total", "name" => name).increment(1);
                    let most_ms = 5 << run;
                    let pause = rand::rng().random_range(1..=most_ms);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    run += 1;
                }
                other => return other,
            }
        }
    }

    /// One run, counted: how long it waited for its connection, how long it kept it, and how it ended.
    async fn run_once<'env, T, F>(&self, name: &'static str, body: &F) -> Result<T, Fault>
    where
        F: for<'t> Fn(Tx<'t, 'env>) -> BoxFuture<'t, Result<Verdict<T>, Fault>>,
    {
        let asked = Instant::now();
        let tx = self.begin().await?;
        metrics::histogram!("onehold_connection_wait_seconds").record(asked.elapsed());
        let began = Instant::now();
        let (outcome, result) = Self::finish(tx, body).await;
        metrics::histogram!("onehold_transaction_seconds", "name" => name).record(began.elapsed());
        metrics::counter!("onehold_transactions_total", "name" => name, "outcome" => outcome).increment(1);
        result
    }

    async fn finish<'env, T, F>(mut tx: Transaction<'static, Postgres>, body: &F) -> (&'static str, Result<T, Fault>)
    where
        F: for<'t> Fn(Tx<'t, 'env>) -> BoxFuture<'t, Result<Verdict<T>, Fault>>,
    {
        match body(Tx { conn: &mut tx, env: PhantomData }).await {
            Ok(Verdict::Commit(value)) => match tx.commit().await {
                Ok(()) => ("committed", Ok(value)),
                Err(error) => ("failed", Err(error.into())),
            },
            Ok(Verdict::Rollback(value)) => match tx.rollback().await {
                Ok(()) => ("rolled_back", Ok(value)),
                Err(error) => ("failed", Err(error.into())),
            },
            Err(fault) => {
                // Dropping would roll back too, but later, with the locks still held until then.
                let _ = tx.rollback().await;
                ("failed", Err(fault))
            }
        }
    }

    /// Begins on a task of its own. A `begin` that is dropped half-way leaves sqlx 0.9 with a connection
    /// in an open transaction that it takes for a clean one, so a caller's cancellation (a client that
    /// hangs up, a time limit) must never reach it.
    async fn begin(&self) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        let pool = self.pool().clone();
        #[allow(clippy::disallowed_methods, reason = "this is the wrapper that the lint points to")]
        let begun = tokio::spawn(async move { pool.begin_with(sql::BEGIN).await });
        begun.await.unwrap_or_else(|join| Err(sqlx::Error::Protocol(format!("begin did not end: {join}"))))
    }
}
