//! Statements of the housekeeping.

use sqlx::PgPool;

pub(super) async fn shops(pool: &PgPool) -> Result<Vec<i32>, sqlx::Error> {
    sqlx::query_scalar!("select id from onehold.shops order by id").fetch_all(pool).await
}

pub(super) async fn requeue_orders(
    pool: &PgPool,
    shop_id: i32,
    max_attempts: i32,
    limit: i64,
) -> Result<i64, sqlx::Error> {
    // Ten seconds: a job that is merely slow is not lost, and its worker's death is noticed sooner.
    sqlx::query_scalar!(
        r#"with lost as materialized (
               select o.id from onehold.orders o
               where o.shop_id = $1 and o.status = 'placed'
                 -- Who waits is served by those who free, and has a job for when his time is over.
                 and coalesce(o.waiting_until, o.placed_at) < clock_timestamp() - interval '10 seconds'
                 and not exists (
                     select from apalis.jobs j
                     where j.job_type = 'reserve' and j.idempotency_key = o.id::text
                       and (j.status in ('Pending', 'Queued', 'Running', 'Failed')
                            or (j.status = 'Killed' and j.done_at > clock_timestamp() - interval '15 minutes')))
               order by o.id
               limit $3
           )
           select count(*) filter (where onehold.enqueue_job('reserve', id::text,
                      jsonb_build_object('v', 1, 'shop', $1::int, 'order', id), $2)) as "count!"
           from lost"#,
        shop_id,
        max_attempts,
        limit
    )
    .fetch_one(pool)
    .await
}

pub(super) async fn requeue_payments(
    pool: &PgPool,
    shop_id: i32,
    max_attempts: i32,
    limit: i64,
) -> Result<i64, sqlx::Error> {
    // Only what can be applied: its order exists and is decided. The rest waits for its order. What a
    // week did not settle is a person's matter, and is not looked at for ever. A job of any stage serves;
    // one that has ended a moment ago may have left the event as it is, and is not repeated within the same run.
    sqlx::query_scalar!(
        r#"with lost as materialized (
               select e.provider, e.event_id
               from onehold.payment_events e
               where e.shop_id = $1 and e.state = 'pending'
                 and e.received_at < statement_timestamp() - interval '10 seconds'
                 and e.received_at > statement_timestamp() - interval '7 days'
                 and exists (
                     select from onehold.orders o
                     where o.shop_id = e.shop_id and o.status <> 'placed'
                       and (o.reference = e.order_ref or o.id = onehold.uuid_or_null(e.order_ref)))
                 and not exists (
                     select from apalis.jobs j
                     where j.job_type = 'convert'
                       and j.idempotency_key in (
                           select $1::int || ':' || e.provider || ':' || e.event_id || stage
                           from unnest('{"",:placed,:reserved,:refused,:cancelled,:requeue}'::text[]) stage)
                       and (j.status in ('Pending', 'Queued', 'Running', 'Failed')
                            or j.done_at > clock_timestamp() - interval '10 seconds'
                            or (j.status = 'Killed' and j.done_at > clock_timestamp() - interval '15 minutes')))
               order by e.received_at
               limit $3
           )
           select count(*) filter (where onehold.enqueue_job('convert', $1::int || ':' || provider || ':' || event_id || ':requeue',
                      jsonb_build_object('v', 1, 'shop', $1::int, 'provider', provider, 'event', event_id), $2))
                      as "count!"
           from lost"#,
        shop_id,
        max_attempts,
        limit
    )
    .fetch_one(pool)
    .await
}

pub(super) async fn wake_waiting(pool: &PgPool, shop_id: i32, limit: i32) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select onehold.wake_waiting($1, $2) as "woken!""#, shop_id, limit).fetch_one(pool).await
}

pub(super) async fn forget_waiting(pool: &PgPool, shop_id: i32, limit: i32) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select onehold.forget_waiting($1, $2) as "lines!""#, shop_id, limit).fetch_one(pool).await
}

/// How many pools were looked at, and how many of them got a refill job.
pub(super) struct Walked {
    pub(super) looked: i64,
    pub(super) woken: i64,
}

pub(super) async fn wake_pools(pool: &PgPool, shop_id: i32, limit: i32) -> Result<Walked, sqlx::Error> {
    sqlx::query_as!(
        Walked,
        r#"select looked as "looked!", woken as "woken!" from onehold.wake_pools($1, $2)"#,
        shop_id,
        limit
    )
    .fetch_one(pool)
    .await
}
