//! Jobs of the other queues. Not checked at build time: as all that the bench lays in.

use sqlx::PgPool;

pub(super) async fn graphile_add(pool: &PgPool, jobs: i32) -> Result<(), sqlx::Error> {
    sqlx::query("select count(graphile_worker.add_job('nothing', '{}'::json)) from generate_series(1, $1)")
        .bind(jobs)
        .execute(pool)
        .await
        .map(|_| ())
}

/// It deletes what is done.
pub(super) async fn graphile_left(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("select count(*) from graphile_worker._private_jobs").fetch_one(pool).await
}

pub(super) async fn apalis_add(pool: &PgPool, queue: &str, jobs: i32) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, run_at, priority)
         select apalis.generate_ulid(), $1, convert_to('1', 'UTF8'), 'Pending', 0, 25, now(), 0 from generate_series(1, $2)",
    )
    .bind(queue)
    .bind(jobs)
    .execute(pool)
    .await
    .map(|_| ())
}
