//! The payments room's own statements.

use chrono::{DateTime, Utc};
use sqlx::PgExecutor;
use uuid::Uuid;

use super::event::PaymentEvent;

/// What became of an event that was offered to the inbox.
pub(super) struct Kept {
    pub(super) stored: bool,
    pub(super) enqueued: bool,
}

/// Keeps an event once and puts its job into the queue, in one statement: both or neither.
pub(super) async fn keep(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    provider: &str,
    event: &PaymentEvent,
    payload: &[u8],
) -> Result<Kept, sqlx::Error> {
    sqlx::query_as!(
        Kept,
        r#"
        -- Whose payment it is, where this event names the payment only: an earlier one named the order.
        with whose as (
            select coalesce($6::text, (
                select s.order_ref from onehold.payment_events s
                where s.shop_id = $1 and s.provider = $2 and s.payment_id = $7 and s.order_ref is not null
                limit 1
            )) as order_ref
        ),
        -- A duplicate waits here for the first one to commit, and then stores nothing.
        stored as (
            insert into onehold.payment_events
                (shop_id, provider, event_id, type, effect, order_ref, payment_id, amount, currency, payload,
                 state, outcome)
            select $1, $2, $3, $4, $5, whose.order_ref, $7, $8, $9, $10,
                   case when $5 = 'none' or whose.order_ref is null then 'ignored' else 'pending' end,
                   case when $5 = 'none' then 'no_effect' when whose.order_ref is null then 'names_no_order' end
            from whose
            on conflict (shop_id, provider, event_id) do nothing
            returning shop_id, provider, event_id, state
        ),
        -- Event ids are unique per shop and provider only, so the shop is part of the job's key.
        job as (
            select onehold.enqueue_job('convert', shop_id || ':' || provider || ':' || event_id,
                jsonb_build_object('v', 1, 'shop', shop_id, 'provider', provider, 'event', event_id), 20) as put
            from stored where state = 'pending'
        )
        select exists (select from stored) as "stored!", coalesce((select bool_or(put) from job), false) as "enqueued!"
        "#,
        shop_id,
        provider,
        event.event_id,
        event.kind,
        event.effect.code(),
        event.order_ref,
        event.payment_id,
        event.amount,
        event.currency,
        payload
    )
    .fetch_one(db)
    .await
}

/// A row of the inbox.
pub(super) struct Row {
    pub(super) kind: String,
    pub(super) effect: String,
    pub(super) order_ref: Option<String>,
    pub(super) payment_id: Option<String>,
    pub(super) amount: Option<i64>,
    pub(super) currency: Option<String>,
    pub(super) received_at: DateTime<Utc>,
    pub(super) state: String,
    pub(super) order_id: Option<Uuid>,
    pub(super) outcome: Option<String>,
}

/// One event of the inbox.
pub(super) async fn event(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    provider: &str,
    event_id: &str,
) -> Result<Option<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"select type as kind, effect, order_ref, payment_id, amount, currency, received_at, state, order_id, outcome
           from onehold.payment_events
           where shop_id = $1 and provider = $2 and event_id = $3"#,
        shop_id,
        provider,
        event_id
    )
    .fetch_optional(db)
    .await
}

/// Says what became of an event that is still pending; gives how many rows that were.
pub(super) async fn settle(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    provider: &str,
    event_id: &str,
    order_id: Option<Uuid>,
    state: &str,
    outcome: &str,
) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        r#"update onehold.payment_events
           set state = $5, order_id = $4, outcome = $6, applied_at = clock_timestamp()
           where shop_id = $1 and provider = $2 and event_id = $3 and state = 'pending'"#,
        shop_id,
        provider,
        event_id,
        order_id,
        state,
        outcome
    )
    .execute(db)
    .await
    .map(|done| done.rows_affected())
}

/// What became of one of several events; `n` is its place among them, from 1.
pub(super) struct KeptOne {
    pub(super) n: i64,
    pub(super) stored: bool,
    pub(super) enqueued: bool,
}

/// As [`keep`], for several events that each name their order.
pub(super) async fn keep_together(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    events: &[(&'static str, PaymentEvent, Vec<u8>)],
) -> Result<Vec<KeptOne>, sqlx::Error> {
    fn column<T>(
        events: &[(&'static str, PaymentEvent, Vec<u8>)],
        of: impl Fn(&(&'static str, PaymentEvent, Vec<u8>)) -> T,
    ) -> Vec<T> {
        events.iter().map(of).collect()
    }
    sqlx::query_as!(
        KeptOne,
        r#"
        with asked as materialized (
            select a.*, row_number() over (partition by a.provider, a.event_id order by a.n) = 1 as first
            from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                        $9::text[], $10::bytea[]) with ordinality
                as a (provider, event_id, type, effect, order_ref, payment_id, amount, currency, payload, n)
        ),
        -- A duplicate waits here for the first one to commit, and then stores nothing; all do so in one order.
        stored as (
            insert into onehold.payment_events
                (shop_id, provider, event_id, type, effect, order_ref, payment_id, amount, currency, payload,
                 state, outcome)
            select $1, provider, event_id, type, effect, order_ref, payment_id, amount, currency, payload,
                   case when effect = 'none' then 'ignored' else 'pending' end,
                   case when effect = 'none' then 'no_effect' end
            from asked
            where first
            order by provider, event_id
            on conflict (shop_id, provider, event_id) do nothing
            returning provider, event_id, state
        ),
        job as (
            select onehold.enqueue_jobs('convert',
                array_agg($1::int || ':' || provider || ':' || event_id),
                array_agg(jsonb_build_object('v', 1, 'shop', $1::int, 'provider', provider, 'event', event_id)), 20) as put
            from stored where state = 'pending'
            having count(*) > 0
        )
        select a.n as "n!", s.event_id is not null and a.first as "stored!",
               coalesce(s.state = 'pending' and (select put from job) > 0, false) as "enqueued!"
        from asked a left join stored s on s.provider = a.provider and s.event_id = a.event_id
        "#,
        shop_id,
        &column(events, |e| e.0.to_owned()),
        &column(events, |e| e.1.event_id.clone()),
        &column(events, |e| e.1.kind.clone()),
        &column(events, |e| e.1.effect.code().to_owned()),
        &column(events, |e| e.1.order_ref.clone()) as &[Option<String>],
        &column(events, |e| e.1.payment_id.clone()) as &[Option<String>],
        &column(events, |e| e.1.amount) as &[Option<i64>],
        &column(events, |e| e.1.currency.clone()) as &[Option<String>],
        &column(events, |e| e.2.clone())
    )
    .fetch_all(db)
    .await
}
