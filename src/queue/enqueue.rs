//! Putting jobs into queues: inside the caller's transaction, so that a job exists exactly when what it is
//! about exists. After the commit the caller says so with `db.notifier().job(queue)`; who forgets it, or
//! cannot, waits for the next poll.

use std::time::Duration;

use sqlx::PgExecutor;

use super::catalogue::Job;
use super::sql;

/// Enqueues `payload` under `key`, due at once. One key is one job in its queue: while it waits or runs it
/// serves, and one that has ended is run again from its first attempt. Gives whether a job was put in.
///
/// # Errors
/// What the database answers.
pub async fn job<J: Job>(db: impl PgExecutor<'_>, key: &str, payload: &J) -> Result<bool, sqlx::Error> {
    put(db, key, payload, Duration::ZERO, true).await
}

/// As [`job`], due after `delay`.
///
/// # Errors
/// What the database answers.
pub async fn later<J: Job>(
    db: impl PgExecutor<'_>,
    key: &str,
    payload: &J,
    delay: Duration,
) -> Result<bool, sqlx::Error> {
    put(db, key, payload, delay, true).await
}

/// As [`job`], but a job of this key that has ended is not run again for as long as it is kept.
///
/// # Errors
/// What the database answers.
pub async fn once<J: Job>(db: impl PgExecutor<'_>, key: &str, payload: &J) -> Result<bool, sqlx::Error> {
    put(db, key, payload, Duration::ZERO, false).await
}

async fn put<J: Job>(
    db: impl PgExecutor<'_>,
    key: &str,
    payload: &J,
    delay: Duration,
    again: bool,
) -> Result<bool, sqlx::Error> {
    let payload = serde_json::to_value(payload).map_err(|e| sqlx::Error::Encode(e.into()))?;
    sql::enqueue(db, J::QUEUE.name, key, payload, J::QUEUE.max_attempts.into(), delay.as_secs_f64(), again).await
}
