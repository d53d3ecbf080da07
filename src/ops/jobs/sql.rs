//! Statements on jobs, for those who watch.

use sqlx::PgPool;

use super::{Failures, JobRow};

pub(super) async fn failures(pool: &PgPool, queues: &[String], most: i64) -> Result<Vec<Failures>, sqlx::Error> {
    // recent: of each queue a bounded number, by the index of dead letters and that of due jobs. Ids, numbers and
    // quoted values differ from job to job and are left out of the text that is grouped by.
    sqlx::query_as!(
        Failures,
        r#"with recent as (
               select q.name as queue, x.*
               from unnest($1::text[]) q (name)
               cross join lateral (
                   (select true as dead, coalesce(j.done_at, j.run_at) as at, j.last_result->>'Err' as error
                    from apalis.jobs j where j.job_type = q.name and j.status = 'Killed'
                    order by j.done_at desc limit $2)
                   union all
                   (select false, j.run_at, j.last_result->>'Err'
                    from apalis.jobs j where j.job_type = q.name and j.status = 'Failed' and j.attempts < j.max_attempts
                    order by j.run_at desc limit $2)) x
           )
           select queue as "queue!", coalesce(nullif(regexp_replace(left(error, 300),
                      '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+', '…', 'g'), ''), '(no text)') as "error!",
                  count(*) filter (where dead) as "dead!", count(*) filter (where not dead) as "again!",
                  max(at) as "last!"
           from recent group by 1, 2 order by count(*) desc, 1, 2 limit 50"#,
        queues,
        most
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn dead(pool: &PgPool, queue: &str, most: i64) -> Result<Vec<JobRow>, sqlx::Error> {
    sqlx::query_as!(
        JobRow,
        r#"select id, job_type as queue, status, attempts, max_attempts, run_at, done_at,
                  last_result->>'Err' as error, left(lock_by, 200) as worker, job as payload
           from apalis.jobs where job_type = $1 and status = 'Killed' order by done_at desc limit $2"#,
        queue,
        most
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn find(pool: &PgPool, id: &str) -> Result<Option<JobRow>, sqlx::Error> {
    sqlx::query_as!(
        JobRow,
        r#"select id, job_type as queue, status, attempts, max_attempts, run_at, done_at,
                  last_result->>'Err' as error, left(lock_by, 200) as worker, job as payload
           from apalis.jobs where id = $1"#,
        id
    )
    .fetch_optional(pool)
    .await
}
