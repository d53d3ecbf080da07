//! The queue's statements on apalis's tables. Each is one round trip and one commit.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgPool;
use sqlx::{PgConnection, PgExecutor};

/// The server ends a statement before this ([`crate::db::STATEMENT_TIMEOUT`]); whoever waits longer waits
/// for a server that is gone without a word.
const LONGEST_ANSWER: Duration = Duration::from_secs(12);

/// Runs one statement on a connection of `pool`, and gives up on the connection when the answer does not
/// come: it is closed, not given back, because nobody can know what it still has to say.
///
/// # Errors
/// The statement's own, or an I/O error of the kind `TimedOut`.
pub(super) async fn with_limit<T>(
    pool: &PgPool,
    statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    match tokio::time::timeout(LONGEST_ANSWER, statement(&mut conn)).await {
        Ok(answer) => answer,
        Err(_) => {
            drop(conn.detach());
            Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
        }
    }
}

/// A job that has just been claimed.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) id: String,
    pub(super) payload: Vec<u8>,
    /// Counted from 1, this execution included.
    pub(super) attempt: i32,
    pub(super) max_attempts: i32,
    /// When it was claimed: with the attempt, what tells this execution from any other.
    pub(super) lock_at: DateTime<Utc>,
    /// For how many seconds it has been due.
    pub(super) overdue: f64,
}

/// Claims at most `most` jobs of `queue` for `worker`, the longest due first, of those that became due
/// within the last `window` seconds. Counts the attempt here, so that a job that kills its process is
/// charged for it.
pub(super) async fn claim(
    db: impl PgExecutor<'_>,
    queue: &str,
    worker: &str,
    most: i64,
    window: f64,
) -> Result<Vec<Claimed>, sqlx::Error> {
    // `now()`, not `clock_timestamp()`: a statement of its own sees them alike, and only the first can
    // bound an index scan. `= any (array(…))`, not a join: no estimate can turn that into a table scan.
    sqlx::query_as!(
        Claimed,
        r#"update apalis.jobs
           set status = 'Running', attempts = least(attempts, 2147483646) + 1,
               lock_by = $2, lock_at = clock_timestamp()
           where id = any (array(
               select id from apalis.jobs
               where job_type = $1
                 and (status = 'Pending' or (status = 'Failed' and attempts < max_attempts))
                 and run_at between now() - make_interval(secs => $4) and now()
                 and not exists (select from apalis.paused_queues p where p.queue = $1)
               order by run_at limit $3 for update skip locked))
           returning id, job as payload, attempts as attempt, max_attempts, lock_at as "lock_at!",
                     extract(epoch from now() - run_at)::float8 as "overdue!""#,
        queue,
        worker,
        most,
        window
    )
    .fetch_all(db)
    .await
}

/// Executions that have ended, column by column; the columns are of one length.
#[derive(Debug, Default)]
pub(super) struct Endings {
    pub(super) ids: Vec<String>,
    pub(super) workers: Vec<String>,
    pub(super) attempts: Vec<i32>,
    pub(super) locks: Vec<DateTime<Utc>>,
    /// Nothing where the job is done.
    pub(super) errors: Vec<Option<String>>,
    /// Whether the job shall not be tried again, whatever attempts it has left.
    pub(super) dead: Vec<bool>,
    /// Seconds until the next attempt; nothing where the backoff says it.
    pub(super) waits: Vec<Option<f64>>,
}

/// What became of one ending.
#[derive(Debug)]
pub(super) struct Acknowledged {
    /// Its position among the endings, from 1.
    pub(super) position: i64,
    /// The job's new status; nothing where its row is locked by someone else at this moment.
    pub(super) status: Option<String>,
    /// Seconds until the job is due again, where it failed with attempts left.
    pub(super) due_in: Option<f64>,
}

/// Acknowledges `endings` whose executions still own their jobs; others are missing in the answer. The
/// backoff before attempt n + 1 is random between 0 and `base` × 2^(n-1) seconds, at most `cap`.
pub(super) async fn acknowledge(
    db: impl PgExecutor<'_>,
    endings: &Endings,
    base: f64,
    cap: f64,
) -> Result<Vec<Acknowledged>, sqlx::Error> {
    // mine: the executions that still own their jobs; one that was taken for dead owns nothing any more.
    // free: those whose row is not locked: one locked row must not keep all the others waiting.
    sqlx::query_as!(
        Acknowledged,
        r#"with mine as (
               select e.*, j.max_attempts
               from unnest($1::text[], $2::text[], $3::int[], $4::timestamptz[], $5::text[], $6::bool[], $7::float8[])
                    with ordinality e (id, worker, attempt, lock_at, error, dead, wait, position)
               join apalis.jobs j on j.id = e.id and j.status = 'Running'
                and j.lock_by = e.worker and j.attempts = e.attempt and j.lock_at = e.lock_at
           ), free as (
               select j.id
               from apalis.jobs j
               join mine m on m.id = j.id
                and j.status = 'Running' and j.lock_by = m.worker and j.attempts = m.attempt and j.lock_at = m.lock_at
               for update of j skip locked
           ), ended as (
               update apalis.jobs j
               set status = case when m.error is null then 'Done'
                                 when m.dead or m.attempt >= m.max_attempts then 'Killed'
                                 else 'Failed' end,
                   done_at = case when m.error is null or m.dead or m.attempt >= m.max_attempts
                                  then clock_timestamp() end,
                   run_at = case when m.error is null or m.dead or m.attempt >= m.max_attempts then j.run_at
                                 else clock_timestamp() + make_interval(secs => coalesce(m.wait,
                                      random() * least($9::float8, $8::float8 * 2 ^ least(m.attempt - 1, 30)))) end,
                   last_result = case when m.error is null then '{"Ok": null}'::jsonb
                                      else jsonb_build_object('Err', m.error) end
               from mine m
               where j.id = m.id and j.id in (select id from free)
               returning m.position, j.status, j.run_at
           )
           select m.position as "position!", ended.status as "status?",
                  case when ended.status = 'Failed'
                       then extract(epoch from ended.run_at - clock_timestamp())::float8 end as due_in
           from mine m left join ended using (position)"#,
        &endings.ids,
        &endings.workers,
        &endings.attempts,
        &endings.locks,
        &endings.errors as &[Option<String>],
        &endings.dead,
        &endings.waits as &[Option<f64>],
        base,
        cap
    )
    .fetch_all(db)
    .await
}

/// Says that the workers `ids[i]` of the queues `queues[i]` live, and registers those that are not known
/// (any more).
pub(super) async fn beat(db: impl PgExecutor<'_>, ids: &[String], queues: &[String]) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into apalis.workers as w (id, worker_type, storage_name, layers, last_seen, started_at)
         select id, queue, 'onehold', $3, clock_timestamp(), clock_timestamp()
         from unnest($1::text[], $2::text[]) b (id, queue)
         on conflict (id) do update set last_seen = clock_timestamp()",
        ids,
        queues,
        // apalis lists the layers of a worker here, of which ours has none: operators see which release it runs.
        env!("CARGO_PKG_VERSION")
    )
    .execute(db)
    .await
    .map(|_| ())
}

/// Gives back at most `most` jobs of workers that have not been seen for `dead_after` seconds: to be run
/// again, or dead where their attempts are used up. Gives the queue of each.
pub(super) async fn recover(db: impl PgExecutor<'_>, dead_after: f64, most: i64) -> Result<Vec<String>, sqlx::Error> {
    // From the dead workers to their jobs, not the other way: jobs in hand may be many, the dead are few.
    sqlx::query_scalar!(
        r#"update apalis.jobs
           set status = case when attempts >= max_attempts then 'Killed' else 'Pending' end,
               done_at = case when attempts >= max_attempts then clock_timestamp() end,
               run_at = clock_timestamp(), lock_by = null, lock_at = null,
               last_result = '{"Err": "its worker was lost"}'
           where id = any (array(
               select j.id from apalis.jobs j
               where j.status in ('Queued', 'Running') and j.lock_by = any (array(
                   select id from apalis.workers where last_seen < now() - make_interval(secs => $1)))
               limit $2 for update skip locked))
           returning job_type"#,
        dead_after,
        most
    )
    .fetch_all(db)
    .await
}

/// As [`recover`], for jobs in hand of workers that have no row at all: deleted by hand, or claimed by a
/// worker that was thought dead for long and has then died.
pub(super) async fn recover_orphans(
    db: impl PgExecutor<'_>,
    dead_after: f64,
    most: i64,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"update apalis.jobs
           set status = case when attempts >= max_attempts then 'Killed' else 'Pending' end,
               done_at = case when attempts >= max_attempts then clock_timestamp() end,
               run_at = clock_timestamp(), lock_by = null, lock_at = null,
               last_result = '{"Err": "its worker was lost"}'
           where id = any (array(
               select j.id from apalis.jobs j
               where j.status in ('Queued', 'Running')
                 and coalesce(j.lock_at < now() - make_interval(secs => $1), true)
                 and not exists (select from apalis.workers w where w.id = j.lock_by)
               limit $2 for update skip locked))
           returning job_type"#,
        dead_after,
        most
    )
    .fetch_all(db)
    .await
}

/// Hands back what `workers` hold in the database for longer than `age` seconds, except the executions
/// `(ids[i], locks[i])`, as if it had never been claimed. Gives the queue of each, at most `most`.
pub(super) async fn hand_back(
    db: impl PgExecutor<'_>,
    workers: &[String],
    ids: &[String],
    locks: &[DateTime<Utc>],
    age: f64,
    most: i64,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"update apalis.jobs
           set status = 'Pending', attempts = greatest(attempts - 1, 0), run_at = clock_timestamp(),
               lock_by = null, lock_at = null
           where id = any (array(
               select j.id from apalis.jobs j
               where j.status = 'Running' and j.lock_by = any ($1)
                 and j.lock_at <= now() - make_interval(secs => $4)
                 and not exists (select from unnest($2::text[], $3::timestamptz[]) h (id, lock_at)
                                 where h.id = j.id and h.lock_at = j.lock_at)
               limit $5 for update skip locked))
           returning job_type"#,
        workers,
        ids,
        locks,
        age,
        most
    )
    .fetch_all(db)
    .await
}

/// Removes the rows of `workers`, which end.
pub(super) async fn leave(db: impl PgExecutor<'_>, workers: &[String]) -> Result<(), sqlx::Error> {
    sqlx::query!("delete from apalis.workers where id = any ($1)", workers).execute(db).await.map(|_| ())
}

/// Removes workers that have not been seen for `age` seconds and hold no jobs. Gives how many.
pub(super) async fn prune_workers(db: impl PgExecutor<'_>, age: f64) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "delete from apalis.workers w
         where last_seen < now() - make_interval(secs => $1)
           and not exists (select from apalis.jobs j where j.lock_by = w.id and j.status in ('Queued', 'Running'))",
        age
    )
    .execute(db)
    .await
    .map(|done| done.rows_affected())
}

/// What a batch of pruning removed.
#[derive(Debug)]
pub(super) struct Pruned {
    /// How many jobs.
    pub(super) jobs: i64,
    /// When the last of them had ended: where the next batch begins.
    pub(super) up_to: Option<DateTime<Utc>>,
}

/// Removes at most `most` jobs of `status` that ended more than `age` seconds ago and not before `from`.
pub(super) async fn prune_jobs(
    db: impl PgExecutor<'_>,
    status: &str,
    age: f64,
    from: Option<DateTime<Utc>>,
    most: i64,
) -> Result<Pruned, sqlx::Error> {
    sqlx::query_as!(
        Pruned,
        r#"with gone as (
               delete from apalis.jobs
               where id = any (array(
                   select id from apalis.jobs
                   where status in ('Done', 'Killed') and status = $1
                     and done_at between coalesce($3::timestamptz, '-infinity') and now() - make_interval(secs => $2)
                   order by done_at limit $4 for update skip locked))
               returning done_at
           )
           select count(*) as "jobs!", max(done_at) as up_to from gone"#,
        status,
        age,
        from,
        most
    )
    .fetch_one(db)
    .await
}

/// Puts a job into a queue by `onehold.enqueue_job`. Gives whether one was put in.
pub(super) async fn enqueue(
    db: impl PgExecutor<'_>,
    queue: &str,
    key: &str,
    payload: serde_json::Value,
    max_attempts: i32,
    delay: f64,
    again: bool,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select onehold.enqueue_job($1, $2, $3, $4, make_interval(secs => $5), $6) as "put!""#,
        queue,
        key,
        payload,
        max_attempts,
        delay,
        again
    )
    .fetch_one(db)
    .await
}
