//! Statements on what jobs follow.

use sqlx::PgPool;
use uuid::Uuid;

/// Without waiting for the disk: a trace that a crash ends is no loss.
pub(super) async fn keep(pool: &PgPool, shop_id: i32, about: &str, traceparent: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into onehold.traces (shop_id, about, traceparent)
         select $1, $2, $3 from set_config('synchronous_commit', 'off', true)
         on conflict (shop_id, about) do nothing",
        shop_id,
        about,
        traceparent
    )
    .execute(pool)
    .await
    .map(|_| ())
}

pub(super) async fn of(pool: &PgPool, shop_id: i32, about: &str) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!("select traceparent from onehold.traces where shop_id = $1 and about = $2", shop_id, about)
        .fetch_optional(pool)
        .await
}

pub(super) async fn of_order(pool: &PgPool, shop_id: i32, order: Uuid) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "select t.traceparent from onehold.orders o
         join onehold.traces t on t.shop_id = o.shop_id and t.about = 'key:' || o.idempotency_key
         where o.shop_id = $1 and o.id = $2",
        shop_id,
        order
    )
    .fetch_optional(pool)
    .await
}

pub(super) async fn of_outbound(pool: &PgPool, shop_id: i32, event: Uuid) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "select t.traceparent from onehold.outbound_events v
         join onehold.orders o on o.shop_id = v.shop_id and o.id = v.order_id
         join onehold.traces t on t.shop_id = o.shop_id and t.about = 'key:' || o.idempotency_key
         where v.shop_id = $1 and v.id = $2",
        shop_id,
        event
    )
    .fetch_optional(pool)
    .await
}

pub(super) async fn forget(pool: &PgPool) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "delete from onehold.traces t using (
             select x.shop_id, x.about from onehold.shops s
             cross join lateral (select shop_id, about from onehold.traces
                                 where shop_id = s.id and at < now() - interval '7 days' order by at limit 1000) x
             limit 10000) old
         where t.shop_id = old.shop_id and t.about = old.about"
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}
