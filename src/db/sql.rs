//! The database room's own statements.

use sqlx::{PgConnection, PgExecutor, Row as _};

/// Named here because the server's default could be set otherwise: the allocator relies on every
/// statement seeing what has just been committed.
pub(super) const BEGIN: &str = "begin isolation level read committed";

/// Whether a connection that comes back to the pool stands outside any transaction. Inside one, `now()`
/// is older than the statement, and inside a failed one the statement itself fails (25P02); either way
/// the pool throws the connection away. As one simple-protocol message: parse, bind and execute would
/// each be a statement of their own to the clock.
pub(super) async fn is_clean(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql("select now() = statement_timestamp()").fetch_one(conn).await?.try_get(0)
}

/// Sends the notifications `(channels[i], payloads[i])` at once. Its commit is not waited for on the disk: notices do
/// not outlive a crash of the server anyway, and the fsync would stand in the way of those that matter.
pub(super) async fn notify(db: impl PgExecutor<'_>, channels: &[&str], payloads: &[String]) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"select count(pg_notify(n.channel, n.payload)::text) as "sent!"
           from set_config('synchronous_commit', 'off', true), unnest($1::text[], $2::text[]) n (channel, payload)"#,
        channels as &[&str],
        payloads
    )
    .fetch_one(db)
    .await
    .map(|_| ())
}

/// Gathers the statistics of one table that has grown, and names it.
pub(super) async fn analyze_what_grew(db: &sqlx::PgPool) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!("select onehold.analyze_what_grew()").fetch_one(db).await
}

/// The migrations that this database has, oldest first; none where there is no such table yet.
pub(super) async fn applied_migrations(db: &sqlx::PgPool) -> Result<Vec<i64>, sqlx::Error> {
    // Not checked at build time: the table is made by the migrator, after the database of the build.
    let there: bool = sqlx::query_scalar("select to_regclass('onehold._migrations') is not null").fetch_one(db).await?;
    if !there {
        return Ok(Vec::new());
    }
    sqlx::query_scalar("select version from onehold._migrations where success order by version").fetch_all(db).await
}
