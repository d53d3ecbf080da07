//! The statement that marks.

use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

/// Gives whether there was money to be given back.
pub(super) async fn mark_refunded(
    pool: &PgPool,
    shop_id: i32,
    id: Uuid,
    actor: &str,
    detail: &Value,
) -> Result<bool, sqlx::Error> {
    // One statement: of two who mark at once, the second finds nothing due.
    sqlx::query!(
        "with marked as (
             update onehold.orders set payment_state = 'refunded'
             where shop_id = $1 and id = $2 and payment_state in ('mismatch', 'refund_due')
             returning id
         )
         insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
         select $1, id, 'refunded', $3, $4 from marked",
        shop_id,
        id,
        actor,
        detail
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected() > 0)
}
