//! Statements on orders.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::read::{Event, Filter, Order, Payment, Reservation};
use super::{PaymentState, Status};
use crate::db::{Fault, expect_one};

/// What `onehold.store_order` gives.
pub(super) struct Stored {
    pub(super) order_id: Uuid,
    pub(super) outcome: String,
}

pub(super) async fn store(
    pool: &PgPool,
    shop_id: i32,
    key: &str,
    body: &Value,
    lines: &Value,
    actor: &str,
) -> Result<Stored, sqlx::Error> {
    sqlx::query_as!(
        Stored,
        r#"select order_id as "order_id!", outcome as "outcome!" from onehold.store_order($1, $2, $3, $4, $5)"#,
        shop_id,
        key,
        body,
        lines,
        actor
    )
    .fetch_one(pool)
    .await
}

/// A placement, as `onehold.store_orders` takes it.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) key: String,
    pub(super) body: Value,
    pub(super) lines: Value,
    pub(super) actor: String,
}

/// The place of a placement among those given, from 1, and what became of it.
pub(super) struct StoredOne {
    pub(super) n: i32,
    pub(super) order_id: Uuid,
    pub(super) outcome: String,
}

pub(super) async fn store_together(
    pool: &PgPool,
    shop_id: i32,
    placements: Vec<Placement>,
) -> Result<Vec<StoredOne>, sqlx::Error> {
    let (mut keys, mut bodies, mut lines, mut actors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for placement in placements {
        keys.push(placement.key);
        bodies.push(placement.body);
        lines.push(placement.lines);
        actors.push(placement.actor);
    }
    sqlx::query_as!(
        StoredOne,
        r#"select n as "n!", order_id as "order_id!", outcome as "outcome!"
           from onehold.store_orders($1, $2, $3, $4, $5)"#,
        shop_id,
        &keys,
        &bodies,
        &lines,
        &actors
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn exists(pool: &PgPool, shop_id: i32, id: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (select from onehold.orders where shop_id = $1 and id = $2) as "exists!""#,
        shop_id,
        id
    )
    .fetch_one(pool)
    .await
}

/// An order of a list, and how many bytes the bodies of the orders before it have.
pub(super) struct Listed {
    pub(super) id: Uuid,
    pub(super) bytes_before: i64,
}

pub(super) async fn list(pool: &PgPool, shop_id: i32, filter: &Filter) -> Result<Vec<Listed>, sqlx::Error> {
    // Ids are UUIDv7: newest first is descending id.
    sqlx::query_as!(
        Listed,
        r#"select id, (sum(bytes) over (order by id desc) - bytes)::bigint as "bytes_before!"
           from (
               select id, octet_length(body::text) as bytes from onehold.orders
               where shop_id = $1 and ($2::text is null or reference = $2)
                 and ($3::text is null or status = $3) and ($4::uuid is null or id < $4)
               order by id desc limit $5
           ) page order by id desc"#,
        shop_id,
        filter.reference,
        filter.status.map(Status::code),
        filter.before,
        filter.limit
    )
    .fetch_all(pool)
    .await
}

/// An order without its lines.
pub(super) struct Header {
    pub(super) id: Uuid,
    reference: Option<String>,
    status: String,
    waiting: bool,
    placed_at: DateTime<Utc>,
    hold_expires_at: Option<DateTime<Utc>>,
    refusal: Option<Value>,
    payment_state: String,
    amount: Option<i64>,
    currency: Option<String>,
    buyer: Option<String>,
    metadata: Value,
}

impl Header {
    pub(super) fn into_order(self) -> Result<Order, Fault> {
        let unknown = |what: &str| anyhow::anyhow!("order {} has an unknown {what}", self.id);
        Ok(Order {
            id: self.id,
            status: Status::from_code(&self.status).ok_or_else(|| unknown("status"))?,
            payment: Payment {
                state: PaymentState::from_code(&self.payment_state).ok_or_else(|| unknown("payment state"))?,
                amount: self.amount,
                currency: self.currency,
            },
            reference: self.reference,
            waiting: self.waiting,
            placed_at: self.placed_at,
            hold_expires_at: self.hold_expires_at,
            lines: Vec::new(),
            refusal: self.refusal,
            buyer: self.buyer,
            metadata: self.metadata,
        })
    }
}

pub(super) async fn headers(pool: &PgPool, shop_id: i32, ids: &[Uuid]) -> Result<Vec<Header>, sqlx::Error> {
    sqlx::query_as!(
        Header,
        r#"select o.id, o.reference, o.status, o.status = 'placed' and o.waiting_until is not null as "waiting!",
                  o.placed_at, h.deadline as "hold_expires_at?", o.refusal,
                  o.payment_state, o.amount, o.currency, o.buyer,
                  coalesce(o.body->'metadata', '{}') as "metadata!"
           from onehold.orders o
           left join lateral (
               select min(r.expires_at) as deadline from onehold.reservations r
               where r.shop_id = o.shop_id and r.order_id = o.id and r.state = 'held'
           ) h on true
           where o.shop_id = $1 and o.id = any($2)"#,
        shop_id,
        ids
    )
    .fetch_all(pool)
    .await
}

/// A line of one of several orders.
pub(super) struct LineRow {
    pub(super) order_id: Uuid,
    pub(super) line: i16,
    pub(super) asset: Option<Value>,
    pub(super) sku: Option<String>,
    pub(super) locations: Option<Vec<String>>,
    pub(super) split: bool,
    pub(super) quantity: i32,
}

pub(super) async fn lines(pool: &PgPool, shop_id: i32, ids: &[Uuid]) -> Result<Vec<LineRow>, sqlx::Error> {
    sqlx::query_as!(
        LineRow,
        "select order_id, line, asset, sku, locations, split, quantity from onehold.order_lines
         where shop_id = $1 and order_id = any($2)
         order by order_id, line",
        shop_id,
        ids
    )
    .fetch_all(pool)
    .await
}

/// A reservation of one of several orders.
pub(super) struct ReservationRow {
    pub(super) order_id: Uuid,
    pub(super) line: i16,
    id: Uuid,
    state: String,
    asset: Option<String>,
    sku: Option<String>,
    location: String,
    quantity: i32,
    expires_at: DateTime<Utc>,
    reason: Value,
}

impl ReservationRow {
    pub(super) fn show(&self) -> Reservation {
        Reservation {
            id: self.id,
            state: self.state.clone(),
            asset: self.asset.clone(),
            sku: self.sku.clone(),
            location: self.location.clone(),
            quantity: self.quantity,
            expires_at: self.expires_at,
            reason: self.reason.clone(),
        }
    }
}

pub(super) async fn reservations(
    pool: &PgPool,
    shop_id: i32,
    ids: &[Uuid],
) -> Result<Vec<ReservationRow>, sqlx::Error> {
    sqlx::query_as!(
        ReservationRow,
        r#"select r.order_id, r.line, r.id, r.state, a.key as "asset?", r.sku, r.location, r.quantity, r.expires_at, r.reason
           from onehold.reservations r
           left join onehold.assets a on a.shop_id = r.shop_id and a.id = r.asset_id
           where r.shop_id = $1 and r.order_id = any($2)
           order by r.order_id, r.line, r.acquisition, r.slot"#,
        shop_id,
        ids
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn events(pool: &PgPool, shop_id: i32, id: Uuid) -> Result<Vec<Event>, sqlx::Error> {
    sqlx::query_as!(
        Event,
        r#"select at, kind, actor, onehold.with_reasons(shop_id, order_id, kind, detail) as "detail!"
           from onehold.order_events where shop_id = $1 and order_id = $2
           order by id"#,
        shop_id,
        id
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn lock(conn: &mut PgConnection, shop_id: i32, id: Uuid) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!("select status from onehold.orders where shop_id = $1 and id = $2 for update", shop_id, id)
        .fetch_optional(conn)
        .await
}

pub(super) async fn cancel(
    conn: &mut PgConnection,
    shop_id: i32,
    id: Uuid,
    actor: &str,
    reason: Option<&str>,
) -> Result<String, sqlx::Error> {
    sqlx::query_scalar!(r#"select onehold.end_by_cancelling($1, $2, $3, $4) as "outcome!""#, shop_id, id, actor, reason)
        .fetch_one(conn)
        .await
}

/// Moves an order that its caller has locked and seen in `from`, and tells its history.
pub(super) async fn turn(
    conn: &mut PgConnection,
    shop_id: i32,
    id: Uuid,
    from: Status,
    to: Status,
    actor: &str,
    detail: &Value,
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "with turned as (
             update onehold.orders set status = $4 where shop_id = $1 and id = $2 and status = $3
             returning id
         )
         insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
         select $1, id, $4, $5, $6 from turned",
        shop_id,
        id,
        from.code(),
        to.code(),
        actor,
        detail
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

/// Moves the deadline of an order's live holds to `seconds` from now, never earlier than it is and never
/// later than the shop's `most_hold_factor` times the order's own hold from when it was first held.
pub(super) async fn extend(
    conn: &mut PgConnection,
    shop_id: i32,
    id: Uuid,
    actor: &str,
    seconds: i32,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "with moved as (
             update onehold.reservations r
             set expires_at = greatest(r.expires_at, least(
                 clock_timestamp() + make_interval(secs => $4),
                 r.held_at + make_interval(secs => o.hold_seconds * s.most_hold_factor)))
             from onehold.orders o join onehold.shops s on s.id = o.shop_id
             where o.shop_id = $1 and o.id = $2 and r.shop_id = $1 and r.order_id = $2
               and r.state = 'held' and r.expires_at > clock_timestamp()
             returning r.expires_at
         )
         insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
         select $1, $2, 'extended', $3, jsonb_build_object('hold_seconds', $5::int, 'deadline', min(expires_at))
         from moved
         having count(*) > 0",
        shop_id,
        id,
        actor,
        f64::from(seconds),
        seconds
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends the bindings of a converted order whose row is locked; `status` is what its assets become. Gives how
/// many bindings ended; fewer than the order's converted asset reservations is a fault.
pub(super) async fn end_bindings(conn: &mut PgConnection, shop_id: i32, id: Uuid, status: &str) -> Result<i64, Fault> {
    let counted = sqlx::query!(
        r#"with ended as (
             update onehold.bindings b set ended_at = clock_timestamp()
             from onehold.reservations r
             where r.shop_id = $1 and r.order_id = $2 and r.state = 'converted'
               and b.shop_id = $1 and b.reservation_id = r.id and b.ended_at is null
             returning b.asset_id
         ),
         moved as (
             update onehold.assets a set status = $3, updated_at = clock_timestamp()
             from ended e
             where a.shop_id = $1 and a.id = e.asset_id and a.status <> 'retired'
         )
         select (select count(*) from ended) as "ended!",
                (select count(*) from onehold.reservations r
                 where r.shop_id = $1 and r.order_id = $2 and r.state = 'converted'
                   and r.asset_id is not null) as "sold!" "#,
        shop_id,
        id,
        status
    )
    .fetch_one(conn)
    .await?;
    if counted.ended != counted.sold {
        return Err(anyhow::anyhow!("order {id}: {} bindings for {} sold assets", counted.ended, counted.sold).into());
    }
    Ok(counted.ended)
}

/// Books the units of a converted order back into the ledger, once: a reservation is named once. Gives how
/// many units.
pub(super) async fn return_units(
    conn: &mut PgConnection,
    shop_id: i32,
    id: Uuid,
    actor: &str,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"with back as (
               insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference, actor)
               select shop_id, sku, location, quantity, 'release', 'onehold:release:' || id, $3
               from onehold.reservations
               where shop_id = $1 and order_id = $2 and state = 'converted' and sku is not null
               order by sku, location
               returning delta
           )
           select coalesce(sum(delta), 0)::bigint as "units!" from back"#,
        shop_id,
        id,
        actor
    )
    .fetch_one(conn)
    .await
}
