//! What the scenarios put into the database, and what they are compared with.

use sqlx::PgPool;

/// Puts `assets` assets of a category into the shop `main`: the first `sold` of them sold, the next `held`
/// held for an hour. Needs a superuser: history is written past the triggers, as a restored backup is.
pub(super) async fn fill(pool: &PgPool, category: &str, assets: i32, sold: i32, held: i32) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    let whole = [
        "set session_replication_role = replica",
        "set statement_timeout = '10min'",
        "create temporary table stock as
             select n, onehold.uuid_v7() as asset, onehold.uuid_v7() as buyer, onehold.uuid_v7() as hold
             from generate_series(1, 0) n",
    ];
    for statement in whole {
        sqlx::query(statement).execute(&mut *conn).await?;
    }
    sqlx::query(
        "insert into stock select n, onehold.uuid_v7(), onehold.uuid_v7(), onehold.uuid_v7() from generate_series(1, $1) n",
    )
    .bind(assets)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "insert into onehold.assets (shop_id, id, key, category, location, vendor, rank, owner_id)
         select 1, asset, $1 || '-' || n, $1, (array['BER', 'FRA', 'AMS'])[1 + n % 3], 'Dell', n,
                case when n <= $2 then hold end
         from stock",
    )
    .bind(category)
    .bind(sold + held)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "insert into onehold.orders (shop_id, id, idempotency_key, status)
         select 1, buyer, $1 || '-buyer-' || n, case when n <= $2 then 'converted' else 'reserved' end
         from stock where n <= $3",
    )
    .bind(category)
    .bind(sold)
    .bind(sold + held)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "insert into onehold.reservations (shop_id, id, order_id, asset_id, state, location, expires_at)
         select 1, hold, buyer, asset, case when n <= $1 then 'converted' else 'held' end, 'BER', now() + interval '1 hour'
         from stock where n <= $2",
    )
    .bind(sold)
    .bind(sold + held)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "insert into onehold.bindings (shop_id, reservation_id, asset_id) select 1, hold, asset from stock where n <= $1",
    )
    .bind(sold)
    .execute(&mut *conn)
    .await?;
    let after = [
        "drop table stock",
        "vacuum analyze onehold.assets",
        "vacuum analyze onehold.orders",
        "vacuum analyze onehold.reservations",
        "vacuum analyze onehold.bindings",
    ];
    for statement in after {
        sqlx::query(statement).execute(&mut *conn).await?;
    }
    // Its settings must not reach the next user of the connection.
    conn.close().await
}

pub(super) async fn prepare_commits(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("create table if not exists public.bench_commits (n bigint generated always as identity primary key)")
        .execute(pool)
        .await
        .map(|_| ())
}

/// One row, committed: one fsync, and the least that any answer that lasts can cost.
pub(super) async fn bare_commit(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("insert into public.bench_commits default values").execute(pool).await.map(|_| ())
}
