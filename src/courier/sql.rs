//! Statements on endpoints, their deliveries and attempts.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

use super::endpoints::{Delivery, Endpoint};

/// An endpoint at which something is due.
pub(super) struct Due {
    pub(super) shop_id: i32,
    pub(super) id: Uuid,
    pub(super) url: String,
    pub(super) secret: String,
    pub(super) allow_private: bool,
    pub(super) disabled: bool,
}

/// Endpoints of every shop at which something is due; at most `most`, in random order, so that none is always last.
pub(super) async fn due(pool: &PgPool, most: i64) -> Result<Vec<Due>, sqlx::Error> {
    sqlx::query_as!(
        Due,
        r#"select p.shop_id, p.id, p.url, p.secret, p.allow_private, p.disabled_at is not null as "disabled!"
           from onehold.endpoints p
           where exists (select from onehold.deliveries d
                         where d.shop_id = p.shop_id and d.endpoint_id = p.id and d.state = 'pending'
                           and (d.due_at <= clock_timestamp() or p.disabled_at is not null))
           order by random()
           limit $1"#,
        most
    )
    .fetch_all(pool)
    .await
}

/// A delivery under a lease.
pub(super) struct Taken {
    pub(super) event_id: Uuid,
    pub(super) lease: Uuid,
    pub(super) attempt: i32,
    pub(super) kind: String,
    pub(super) body: String,
}

pub(super) async fn take(
    pool: &PgPool,
    shop_id: i32,
    endpoint: Uuid,
    most: i32,
    lease_seconds: f64,
) -> Result<Vec<Taken>, sqlx::Error> {
    sqlx::query_as!(
        Taken,
        r#"select event_id as "event_id!", lease as "lease!", attempt as "attempt!", type as "kind!", body as "body!"
           from onehold.take_deliveries($1, $2, $3, make_interval(secs => $4))"#,
        shop_id,
        endpoint,
        most,
        lease_seconds
    )
    .fetch_all(pool)
    .await
}

/// How an attempt ended, as it is written down.
pub(super) struct Ended<'a> {
    pub(super) state: &'a str,
    pub(super) delay_seconds: f64,
    pub(super) status: Option<i32>,
    pub(super) error: Option<&'a str>,
    pub(super) took_ms: i32,
}

pub(super) async fn end_attempt(
    pool: &PgPool,
    shop_id: i32,
    endpoint: Uuid,
    taken: &Taken,
    ended: &Ended<'_>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select onehold.end_attempt($1, $2, $3, $4, $5, make_interval(secs => $6), $7, $8, $9) as "decided!""#,
        shop_id,
        endpoint,
        taken.event_id,
        taken.lease,
        ended.state,
        ended.delay_seconds,
        ended.status,
        ended.error,
        ended.took_ms
    )
    .fetch_one(pool)
    .await
}

/// Gives up what is pending at a disabled endpoint, at most `most`.
pub(super) async fn give_up(pool: &PgPool, shop_id: i32, endpoint: Uuid, most: i64) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "update onehold.deliveries set state = 'given_up', lease = null, ended_at = clock_timestamp()
         where shop_id = $1 and endpoint_id = $2 and event_id = any(array(
             select event_id from onehold.deliveries
             where shop_id = $1 and endpoint_id = $2 and state = 'pending'
             limit $3
             for update skip locked))",
        shop_id,
        endpoint,
        most
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}

pub(super) async fn add(
    pool: &PgPool,
    shop_id: i32,
    url: &str,
    secret: &str,
    allow_private: bool,
) -> Result<Uuid, sqlx::Error> {
    sqlx::query_scalar!(
        "insert into onehold.endpoints (shop_id, url, secret, allow_private) values ($1, $2, $3, $4) returning id",
        shop_id,
        url,
        secret,
        allow_private
    )
    .fetch_one(pool)
    .await
}

pub(super) async fn list(pool: &PgPool, shop_id: i32) -> Result<Vec<Endpoint>, sqlx::Error> {
    sqlx::query_as!(
        Endpoint,
        r#"select p.id, p.url, p.allow_private, p.created_at, p.disabled_at, p.disabled_because,
                  (select count(*) from onehold.deliveries d
                   where d.shop_id = $1 and d.endpoint_id = p.id and d.state = 'pending') as "pending!"
           from onehold.endpoints p where p.shop_id = $1 order by p.id"#,
        shop_id
    )
    .fetch_all(pool)
    .await
}

/// Whether the shop's endpoint is live; none where it has no such endpoint.
pub(super) async fn is_live(pool: &PgPool, shop_id: i32, id: Uuid) -> Result<Option<bool>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select disabled_at is null as "live!" from onehold.endpoints where shop_id = $1 and id = $2"#,
        shop_id,
        id
    )
    .fetch_optional(pool)
    .await
}

pub(super) async fn disable(pool: &PgPool, shop_id: i32, id: Uuid, because: &str) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "update onehold.endpoints set disabled_at = clock_timestamp(), disabled_because = $3
         where shop_id = $1 and id = $2 and disabled_at is null",
        shop_id,
        id,
        because
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}

/// Newest first; with each delivery its attempts, oldest first.
pub(super) async fn deliveries(
    pool: &PgPool,
    shop_id: i32,
    endpoint: Uuid,
    state: Option<&str>,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<Delivery>, sqlx::Error> {
    sqlx::query_as!(
        Delivery,
        r#"select v.id as event, v.type as kind, d.order_id as "order", v.at, d.state, d.ended_at,
                  case when d.state = 'pending' then d.due_at end as next_attempt_at,
                  coalesce((select jsonb_agg(jsonb_build_object(
                      'at', a.at, 'status', a.status, 'error', a.error, 'took_ms', a.took_ms) order by a.id)
                   from onehold.delivery_attempts a
                   where a.shop_id = $1 and a.endpoint_id = $2 and a.event_id = d.event_id), '[]') as "attempts!: Value"
           from onehold.deliveries d
           join onehold.outbound_events v on v.shop_id = $1 and v.id = d.event_id
           where d.shop_id = $1 and d.endpoint_id = $2 and ($3::text is null or d.state = $3)
             and ($4::uuid is null or d.event_id < $4)
           order by d.event_id desc
           limit $5"#,
        shop_id,
        endpoint,
        state,
        before,
        limit
    )
    .fetch_all(pool)
    .await
}

/// Delivers one event again. Gives 1, or 0 where the shop has no such event.
pub(super) async fn replay_one(pool: &PgPool, shop_id: i32, endpoint: Uuid, event: Uuid) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select replayed as "replayed!" from onehold.replay_deliveries($1, $2, $3, null, null, null, 1)"#,
        shop_id,
        endpoint,
        event
    )
    .fetch_one(pool)
    .await
}

/// A batch of a replay: how many events, and the last of them.
pub(super) struct Batch {
    pub(super) replayed: i64,
    pub(super) last_at: Option<DateTime<Utc>>,
    pub(super) last_id: Option<Uuid>,
}

/// Delivers again what was decided from `since`, after the event `after`, until before `until`.
pub(super) async fn replay(
    pool: &PgPool,
    shop_id: i32,
    endpoint: Uuid,
    since: DateTime<Utc>,
    after: Uuid,
    until: DateTime<Utc>,
    most: i32,
) -> Result<Batch, sqlx::Error> {
    sqlx::query_as!(
        Batch,
        r#"select replayed as "replayed!", last_at, last_id
           from onehold.replay_deliveries($1, $2, null, $3, $4, $5, $6)"#,
        shop_id,
        endpoint,
        since,
        after,
        until,
        most
    )
    .fetch_one(pool)
    .await
}
