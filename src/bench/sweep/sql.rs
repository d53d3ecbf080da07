//! Lapsed holds. Not checked at build time: as all that the bench lays in.

use sqlx::PgPool;

use super::common;

/// Lays in reserved orders whose hold of one unit has just lapsed.
pub(super) async fn lapsed(
    pool: &PgPool,
    shop_id: i32,
    prefix: &str,
    skus: i32,
    orders: i32,
) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(common::PATIENT).execute(&mut *conn).await?;
    sqlx::query(
        "with fresh as (
             insert into onehold.orders (shop_id, idempotency_key, status)
             select $1, 'bench-' || gen_random_uuid(), 'reserved' from generate_series(1, $4)
             returning id
         ), numbered as materialized (
             select id, $2 || (1 + row_number() over () % $3) as sku from fresh
         ), lines as (
             insert into onehold.order_lines (shop_id, order_id, line, sku, quantity)
             select $1, id, 1, sku, 1 from numbered
         )
         insert into onehold.reservations (shop_id, order_id, sku, location, expires_at)
         select $1, id, sku, 'BER', clock_timestamp() - interval '1 second' from numbered",
    )
    .bind(shop_id)
    .bind(prefix)
    .bind(skus)
    .bind(orders)
    .execute(&mut *conn)
    .await?;
    common::settle(&mut conn, &["onehold.orders", "onehold.reservations"]).await?;
    conn.close().await
}

/// How many lapsed holds of these SKUs are still held.
pub(super) async fn still_lapsed(pool: &PgPool, shop_id: i32, prefix: &str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "select count(*) from onehold.reservations
         where shop_id = $1 and state = 'held' and expires_at <= clock_timestamp() and starts_with(sku, $2)",
    )
    .bind(shop_id)
    .bind(prefix)
    .fetch_one(pool)
    .await
}
