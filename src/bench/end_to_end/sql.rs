//! The least that an order's way can be. Not checked at build time: as all that the bench lays in.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::common;

pub(super) async fn sold_among(pool: &PgPool, shop_id: i32, orders: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar("select id from onehold.orders where shop_id = $1 and id = any ($2) and status = 'converted'")
        .bind(shop_id)
        .bind(orders)
        .fetch_all(pool)
        .await
}

/// Place, reserve, inbox, convert: one row and one commit each.
pub(super) async fn four_commits(conn: &mut PgConnection, shop_id: i32) -> Result<(), sqlx::Error> {
    let order = sqlx::query_scalar(
        "insert into onehold.orders (shop_id, idempotency_key) values ($1, 'bench-bare-' || gen_random_uuid())
         returning id",
    )
    .bind(shop_id)
    .fetch_one(&mut *conn)
    .await?;
    common::bare_reservation(conn, shop_id, &[order]).await?;
    sqlx::query(
        "insert into onehold.payment_events (shop_id, provider, event_id, type, effect, order_ref, payload, state, order_id)
         values ($1, 'standard', 'bench-' || $2, 'payment.succeeded', 'succeeded', $2::text, '{}', 'applied', $2)",
    )
    .bind(shop_id)
    .bind(order)
    .execute(&mut *conn)
    .await?;
    common::bare_sale(conn, shop_id, order).await
}
