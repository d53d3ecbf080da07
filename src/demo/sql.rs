//! What the scenes do in the database that no client can do.

use std::time::Duration;

use anyhow::bail;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use crate::db::Db;

/// Locks an order, so that its job stops in the middle. The lock lasts until the answer is dropped or
/// rolled back.
pub(super) async fn stand_in_the_way(db: &Db, order: Uuid) -> anyhow::Result<Transaction<'static, Postgres>> {
    // A pool of its own: the product's wrapper keeps no transaction open between two calls, by design.
    let pool = PgPoolOptions::new().max_connections(1).connect_with(db.options().clone()).await?;
    #[allow(clippy::disallowed_methods, reason = "this transaction shall stay open and in the way")]
    let mut tx = pool.begin().await?;
    sqlx::query!("select id from onehold.orders where id = $1 for update", order).fetch_one(&mut *tx).await?;
    Ok(tx)
}

/// Waits until a statement of this database waits for a lock.
pub(super) async fn until_someone_waits(db: &Db) -> anyhow::Result<()> {
    for _ in 0..500 {
        let waiting = sqlx::query_scalar!(
            r#"select exists (select from pg_stat_activity
                              where datname = current_database() and wait_event_type = 'Lock') as "waiting!""#
        )
        .fetch_one(db.pool())
        .await?;
        if waiting {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("the job did not start within 10 s")
}

/// How often the reserve job of an order was started.
pub(super) async fn attempts(db: &Db, order: Uuid) -> anyhow::Result<i32> {
    Ok(sqlx::query_scalar!(
        "select attempts from apalis.jobs where job_type = 'reserve' and idempotency_key = $1",
        order.to_string()
    )
    .fetch_one(db.pool())
    .await?)
}
