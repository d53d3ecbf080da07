//! Statements of operators on apalis's tables.

use sqlx::PgExecutor;

pub(super) async fn pause(db: impl PgExecutor<'_>, queue: &str, actor: &str) -> Result<bool, sqlx::Error> {
    sqlx::query!(
        "insert into apalis.paused_queues (queue, paused_by) values ($1, $2) on conflict (queue) do nothing",
        queue,
        actor
    )
    .execute(db)
    .await
    .map(|done| done.rows_affected() > 0)
}

pub(super) async fn resume(db: impl PgExecutor<'_>, queue: &str) -> Result<bool, sqlx::Error> {
    sqlx::query!("delete from apalis.paused_queues where queue = $1", queue)
        .execute(db)
        .await
        .map(|done| done.rows_affected() > 0)
}

/// Gives the queue of what was put back.
pub(super) async fn retry(db: impl PgExecutor<'_>, id: &str) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "update apalis.jobs
         set status = 'Pending', attempts = 0, run_at = clock_timestamp(), lock_by = null, lock_at = null,
             done_at = null
         where id = $1 and status = 'Killed'
         returning job_type",
        id
    )
    .fetch_optional(db)
    .await
}

pub(super) async fn retry_all(db: impl PgExecutor<'_>, queue: &str, most: i64) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "update apalis.jobs
         set status = 'Pending', attempts = 0, run_at = clock_timestamp(), lock_by = null, lock_at = null,
             done_at = null
         where id = any (array(
             select id from apalis.jobs where job_type = $1 and status = 'Killed'
             order by done_at limit $2 for update skip locked))",
        queue,
        most
    )
    .execute(db)
    .await
    .map(|done| done.rows_affected())
}

pub(super) async fn discard(db: impl PgExecutor<'_>, id: &str) -> Result<bool, sqlx::Error> {
    sqlx::query!("delete from apalis.jobs where id = $1 and status = 'Killed'", id)
        .execute(db)
        .await
        .map(|done| done.rows_affected() > 0)
}
