//! Jobs that do nothing, and what is left of them. Not checked at build time: as all that the bench lays in.

use sqlx::PgPool;

/// What is looked at again and again while jobs run must not be slow because many are done.
pub(super) async fn prepare(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query(
        "create index if not exists bench_left on apalis.jobs (job_type) where status not in ('Done', 'Killed')",
    )
    .execute(pool)
    .await
    .map(|_| ())
}

pub(super) async fn enqueue(pool: &PgPool, queue: &str, jobs: i32) -> Result<(), sqlx::Error> {
    sqlx::query(
        "select count(onehold.enqueue_job($1, gen_random_uuid()::text, jsonb_build_object('v', 1), 5))
         from generate_series(1, $2)",
    )
    .bind(queue)
    .bind(jobs)
    .execute(pool)
    .await
    .map(|_| ())
}

pub(in crate::bench) async fn left(pool: &PgPool, queue: &str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("select count(*) from apalis.jobs where job_type = $1 and status not in ('Done', 'Killed')")
        .bind(queue)
        .fetch_one(pool)
        .await
}
