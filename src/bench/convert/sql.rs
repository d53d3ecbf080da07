//! Orders that are held and paid. Not checked at build time: as all that the bench lays in.

use sqlx::PgPool;
use uuid::Uuid;

use super::common;

/// The provider's id of the payment of an order.
pub(super) fn event_of(order: Uuid) -> String {
    format!("bench-{order}")
}

/// Lays in orders that hold one unit each of SKUs `prefix`1 to `prefix`n, and for each a payment that waits to be
/// applied.
pub(super) async fn held_and_paid(
    pool: &PgPool,
    shop_id: i32,
    prefix: &str,
    skus: i32,
    orders: i32,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(common::PATIENT).execute(&mut *conn).await?;
    let placed = sqlx::query_scalar(
        "with fresh as (
             insert into onehold.orders (shop_id, idempotency_key, status)
             select $1, 'bench-' || gen_random_uuid(), 'reserved' from generate_series(1, $4)
             returning id
         ), numbered as materialized (
             select id, $2 || (1 + row_number() over () % $3) as sku from fresh
         ), lines as (
             insert into onehold.order_lines (shop_id, order_id, line, sku, quantity)
             select $1, id, 1, sku, 1 from numbered
         ), holds as (
             insert into onehold.reservations (shop_id, order_id, sku, location, expires_at)
             select $1, id, sku, 'BER', clock_timestamp() + interval '1 day' from numbered
         ), paid as (
             insert into onehold.payment_events
                 (shop_id, provider, event_id, type, effect, order_ref, payment_id, payload)
             select $1, 'standard', 'bench-' || id, 'payment.succeeded', 'succeeded', id::text, 'pay-' || id, '{}'
             from fresh
         )
         select id from fresh",
    )
    .bind(shop_id)
    .bind(prefix)
    .bind(skus)
    .bind(orders)
    .fetch_all(&mut *conn)
    .await?;
    common::settle(&mut conn, &["onehold.orders", "onehold.reservations", "onehold.payment_events"]).await?;
    conn.close().await?;
    Ok(placed)
}
