//! What an installation grows by. Not checked at build time: as all that the bench lays in.

use sqlx::{PgConnection, PgPool};

use super::common::{self, PATIENT};

/// Finished reserve jobs, numbered from after `before` to `upto`.
pub(super) async fn finished_jobs(pool: &PgPool, before: i32, upto: i32) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(PATIENT).execute(&mut *conn).await?;
    sqlx::query(
        "insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, run_at, done_at, priority, idempotency_key)
         select 'bench' || n, 'reserve', convert_to('{\"v\": 1}', 'UTF8'), 'Done', 1, 20, now(), now(), 0, 'bench-' || n
         from generate_series($1 + 1, $2) n",
    )
    .bind(before)
    .bind(upto)
    .execute(&mut *conn)
    .await?;
    common::settle(&mut conn, &["apalis.jobs"]).await?;
    conn.close().await
}

/// So many more orders of the first SKU with this prefix, whose holds expired.
pub(super) async fn history(pool: &PgPool, shop_id: i32, prefix: &str, orders: i32) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(PATIENT).execute(&mut *conn).await?;
    sqlx::query(
        "with fresh as (
             insert into onehold.orders (shop_id, id, idempotency_key, status)
             select $1, gen_random_uuid(), 'bench-' || gen_random_uuid(), 'expired' from generate_series(1, $3)
             returning id
         ), lines as (
             insert into onehold.order_lines (shop_id, order_id, line, sku, quantity) select $1, id, 1, $2 || 1, 1 from fresh
         ), told as (
             insert into onehold.order_events (shop_id, order_id, kind, actor)
             select $1, id, kind, 'bench' from fresh, unnest(array['placed', 'reserved', 'expired']) kind
         )
         insert into onehold.reservations (shop_id, id, order_id, sku, location, state, expires_at)
         select $1, gen_random_uuid(), id, $2 || 1, 'BER', 'expired', clock_timestamp() - interval '1 hour' from fresh",
    )
    .bind(shop_id)
    .bind(prefix)
    .bind(orders)
    .execute(&mut *conn)
    .await?;
    let tables = ["onehold.orders", "onehold.order_lines", "onehold.order_events", "onehold.reservations"];
    common::settle(&mut conn, &tables).await?;
    conn.close().await
}

/// Shops numbered from after `before` to `upto`, each with ten assets of the category and ten units of the SKU.
pub(super) async fn shops(
    pool: &PgPool,
    category: &str,
    sku: &str,
    (before, upto): (i32, i32),
) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    for statement in ["set session_replication_role = replica", PATIENT] {
        sqlx::query(statement).execute(&mut *conn).await?;
    }
    sqlx::query(
        "with fresh as (
             insert into onehold.shops (name) select 'bench-' || n from generate_series($3 + 1, $4) n returning id
         ), assets as (
             insert into onehold.assets (shop_id, id, key, category, location, vendor, rank)
             select id, gen_random_uuid(), $1 || '-' || n, $1, 'BER', 'Dell', n from fresh, generate_series(1, 10) n
         ), levels as (
             insert into onehold.stock_levels (shop_id, sku, location, rolled, next_unit) select id, $2, 'BER', 10, 11 from fresh
         ), moved as (
             insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference)
             select id, $2, 'BER', 10, 'receipt', 'bench' from fresh
         )
         insert into onehold.pool_units (shop_id, sku, location, unit)
         select id, $2, 'BER', n from fresh, generate_series(1, 10) n",
    )
    .bind(category)
    .bind(sku)
    .bind(before)
    .bind(upto)
    .execute(&mut *conn)
    .await?;
    let tables = ["onehold.shops", "onehold.assets", "onehold.stock_levels", "onehold.pool_units"];
    common::settle(&mut conn, &tables).await?;
    conn.close().await
}

/// Begins a transaction that keeps its snapshot, and leaves it open for as long as the session lasts.
pub(super) async fn open(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    for statement in [
        "set idle_in_transaction_session_timeout = 0",
        "begin isolation level repeatable read",
        "select pg_current_xact_id()",
    ] {
        sqlx::query(statement).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Whether the session is in the transaction that [`open`] began.
pub(super) async fn is_open(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select pg_current_xact_id_if_assigned() is not null").fetch_one(conn).await
}
