//! The counters of the server. Not checked at build time: `pg_stat_statements` is not everywhere.

use sqlx::PgPool;

/// Counters of the whole server and of this database.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
pub(in crate::bench) struct Counters {
    pub(in crate::bench) wal: i64,
    pub(in crate::bench) commits: i64,
}

pub(in crate::bench) async fn counters(pool: &PgPool) -> Result<Counters, sqlx::Error> {
    sqlx::query_as(
        "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8 as wal, xact_commit as commits
         from pg_stat_database where datname = current_database()",
    )
    .fetch_one(pool)
    .await
}

/// The server's clock, in microseconds.
pub(in crate::bench) async fn clock(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("select (extract(epoch from clock_timestamp()) * 1000000)::int8").fetch_one(pool).await
}

/// How many sessions there are that began after that time.
pub(in crate::bench) async fn sessions_since(pool: &PgPool, clock: i64) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "select count(*) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()
           and extract(epoch from backend_start) * 1000000 > $1",
    )
    .bind(clock)
    .fetch_one(pool)
    .await
}

/// Has the server load `pg_stat_statements` at its next start. False where it does not have it.
pub(in crate::bench) async fn preload_statements(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let has =
        sqlx::query_scalar("select exists (select from pg_available_extensions where name = 'pg_stat_statements')")
            .fetch_one(pool)
            .await?;
    if has {
        sqlx::query("alter system set shared_preload_libraries = 'pg_stat_statements'").execute(pool).await?;
    }
    Ok(has)
}

pub(in crate::bench) async fn prepare_statements(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("create extension if not exists pg_stat_statements").execute(pool).await?;
    count_statements(pool, false).await
}

pub(in crate::bench) async fn count_statements(pool: &PgPool, count: bool) -> Result<(), sqlx::Error> {
    let set = if count {
        "alter system set pg_stat_statements.track = 'all'"
    } else {
        "alter system set pg_stat_statements.track = 'none'"
    };
    for statement in [set, "select pg_reload_conf()", "select pg_sleep(0.1)"] {
        sqlx::query(statement).execute(pool).await?;
    }
    Ok(())
}

pub(in crate::bench) async fn forget_statements(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("select pg_stat_statements_reset()").execute(pool).await.map(|_| ())
}

/// How many statements there were since they were last forgotten.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
pub(in crate::bench) struct Statements {
    /// That clients sent.
    pub(in crate::bench) sent: i64,
    /// With those inside functions and triggers.
    pub(in crate::bench) all: i64,
}

pub(in crate::bench) async fn statements(pool: &PgPool) -> Result<Statements, sqlx::Error> {
    sqlx::query_as(
        "select coalesce(sum(calls) filter (where toplevel), 0)::int8 as sent, coalesce(sum(calls), 0)::int8 as all
         from pg_stat_statements",
    )
    .fetch_one(pool)
    .await
}
