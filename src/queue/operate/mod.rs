//! What operators do to queues: pause, resume, and deal with dead letters. A pause stands in the database and is
//! part of every claim, so that no worker begins a job of a paused queue; what runs goes on.

mod sql;

use super::catalogue::{self, Queue};
use crate::db::Db;

/// How many dead letters one wish puts back.
pub const MOST_AT_ONCE: i64 = 1_000;

/// The queue of this name, if there is one.
#[must_use]
pub fn queue(name: &str) -> Option<Queue> {
    catalogue::ALL.into_iter().find(|queue| queue.name == name)
}

/// Pauses a queue. Gives whether it was not paused before.
///
/// # Errors
/// What the database answers.
pub async fn pause(db: &Db, queue: Queue, actor: &str) -> Result<bool, sqlx::Error> {
    sql::pause(db.pool(), queue.name, actor).await
}

/// Lets a paused queue go on. Gives whether it was paused.
///
/// # Errors
/// What the database answers.
pub async fn resume(db: &Db, queue: Queue) -> Result<bool, sqlx::Error> {
    let was = sql::resume(db.pool(), queue.name).await?;
    db.notifier().job(queue.name);
    Ok(was)
}

/// Puts a dead letter back into its queue, with all its attempts before it. Gives whether it was one.
///
/// # Errors
/// What the database answers.
pub async fn retry(db: &Db, id: &str) -> Result<bool, sqlx::Error> {
    let queue = sql::retry(db.pool(), id).await?;
    if let Some(queue) = &queue {
        db.notifier().job(queue);
    }
    Ok(queue.is_some())
}

/// Puts back the dead letters of a queue, the oldest first, at most [`MOST_AT_ONCE`]. Gives how many.
///
/// # Errors
/// What the database answers.
pub async fn retry_all(db: &Db, queue: Queue) -> Result<u64, sqlx::Error> {
    let put = sql::retry_all(db.pool(), queue.name, MOST_AT_ONCE).await?;
    db.notifier().job(queue.name);
    Ok(put)
}

/// Removes a dead letter for good. Gives whether it was one.
///
/// # Errors
/// What the database answers.
pub async fn discard(db: &Db, id: &str) -> Result<bool, sqlx::Error> {
    sql::discard(db.pool(), id).await
}
