//! Statements that find orders. Each is bounded by an index and a limit.

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use uuid::Uuid;

use super::super::jobs::JobRow;
use super::Row;

pub(super) async fn newest(pool: &PgPool, shop_id: i32, before: Uuid, most: i64) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        "select id, reference, status, payment_state, placed_at, buyer from onehold.orders
         where shop_id = $1 and id < $2 order by id desc limit $3",
        shop_id,
        before,
        most
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn in_status(
    pool: &PgPool,
    shop_id: i32,
    status: &str,
    before: Uuid,
    most: i64,
) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        "select id, reference, status, payment_state, placed_at, buyer from onehold.orders
         where shop_id = $1 and status = $2 and id < $3 order by id desc limit $4",
        shop_id,
        status,
        before,
        most
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn in_trouble(
    pool: &PgPool,
    shop_id: i32,
    state: &str,
    before: Uuid,
    most: i64,
) -> Result<Vec<Row>, sqlx::Error> {
    // The first condition is that of the partial index, word by word: a parameter alone would not show it.
    sqlx::query_as!(
        Row,
        "select id, reference, status, payment_state, placed_at, buyer from onehold.orders
         where shop_id = $1 and payment_state in ('late', 'mismatch', 'refund_due') and payment_state = $2 and id < $3
         order by id desc limit $4",
        shop_id,
        state,
        before,
        most
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn search(
    pool: &PgPool,
    shop_id: i32,
    text: &str,
    id: Option<Uuid>,
    most: i64,
) -> Result<Vec<Row>, sqlx::Error> {
    // found: each way by its own index, each bounded, so that a name that fits a million rows costs no more.
    sqlx::query_as!(
        Row,
        r#"with found as (
               (select $3::uuid as id where $3 is not null)
               union
               (select id from onehold.orders where shop_id = $1 and reference = $2 order by id desc limit $4)
               union
               (select r.order_id from onehold.assets a
                join onehold.reservations r on r.shop_id = a.shop_id and r.asset_id = a.id
                where a.shop_id = $1 and a.key = $2 and a.deleted_at is null order by r.id desc limit $4)
               union
               (select order_id from onehold.payment_events
                where shop_id = $1 and provider in ('stripe', 'standard') and payment_id = $2 and order_id is not null
                limit $4)
           )
           select o.id, o.reference, o.status, o.payment_state, o.placed_at, o.buyer
           from found f join onehold.orders o on o.shop_id = $1 and o.id = f.id
           order by o.id desc limit $4"#,
        shop_id,
        text,
        id,
        most
    )
    .fetch_all(pool)
    .await
}

pub(super) struct PaymentRow {
    pub(super) provider: String,
    pub(super) event_id: String,
    pub(super) kind: String,
    pub(super) effect: String,
    pub(super) payment_id: Option<String>,
    pub(super) amount: Option<i64>,
    pub(super) currency: Option<String>,
    pub(super) state: String,
    pub(super) outcome: Option<String>,
    pub(super) received_at: DateTime<Utc>,
    pub(super) payload: Vec<u8>,
}

pub(super) async fn payments(
    pool: &PgPool,
    shop_id: i32,
    order: Uuid,
    most: i64,
) -> Result<Vec<PaymentRow>, sqlx::Error> {
    sqlx::query_as!(
        PaymentRow,
        "with mine as (
             (select provider, event_id from onehold.payment_events
              where shop_id = $1 and order_id = $2 order by received_at limit $3)
             union
             -- Not applied yet: they are known by what they call the order.
             (select e.provider, e.event_id from onehold.orders o
              join onehold.payment_events e on e.shop_id = o.shop_id and e.state = 'pending'
                   and e.order_ref in (o.id::text, upper(o.id::text), o.reference)
              where o.shop_id = $1 and o.id = $2 limit $3)
         )
         select e.provider, e.event_id, e.type as kind, e.effect, e.payment_id, e.amount, e.currency, e.state, e.outcome,
                e.received_at, e.payload
         from mine m
         join onehold.payment_events e on e.shop_id = $1 and e.provider = m.provider and e.event_id = m.event_id
         order by e.received_at limit $3",
        shop_id,
        order,
        most
    )
    .fetch_all(pool)
    .await
}

/// The jobs with these keys; the columns are of one length.
pub(super) async fn jobs(
    pool: &PgPool,
    queues: &[String],
    keys: &[String],
    most: i64,
) -> Result<Vec<JobRow>, sqlx::Error> {
    sqlx::query_as!(
        JobRow,
        r#"select j.id, j.job_type as queue, j.status, j.attempts, j.max_attempts, j.run_at, j.done_at,
                  j.last_result->>'Err' as error, left(j.lock_by, 200) as worker, j.job as payload
           from unnest($1::text[], $2::text[]) k (queue, key)
           join apalis.jobs j on j.job_type = k.queue and j.idempotency_key = k.key
           order by j.run_at limit $3"#,
        queues,
        keys,
        most
    )
    .fetch_all(pool)
    .await
}
