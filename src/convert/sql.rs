//! Statements that turn holds into sales.

use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::db::expect_one;
use crate::orders::Status;
use crate::payments::inbox::StoredEvent;

/// An order whose row is locked.
pub(super) struct LockedOrder {
    pub(super) shop_id: i32,
    pub(super) id: Uuid,
    pub(super) status: Status,
    pub(super) payment_state: String,
    pub(super) amount: Option<i64>,
    pub(super) currency: Option<String>,
}

impl LockedOrder {
    /// Whether the event brings what the order expects; an order without a price takes any payment.
    pub(super) fn expects(&self, event: &StoredEvent) -> bool {
        self.amount.is_none() || (self.amount == event.amount && self.currency == event.currency)
    }
}

pub(super) async fn find_order(
    conn: &mut PgConnection,
    shop_id: i32,
    reference: &str,
) -> Result<Option<Uuid>, sqlx::Error> {
    // An id wins over a reference that looks like one, and then nobody looks for references; of several orders
    // with one reference, the newest.
    sqlx::query_scalar!(
        "select coalesce(
             (select id from onehold.orders where shop_id = $1 and id = onehold.uuid_or_null($2)),
             (select id from onehold.orders where shop_id = $1 and reference = $2 order by id desc limit 1))",
        shop_id,
        reference
    )
    .fetch_one(conn)
    .await
}

pub(super) async fn lock_order(
    conn: &mut PgConnection,
    shop_id: i32,
    id: Uuid,
) -> Result<Option<LockedOrder>, sqlx::Error> {
    let row = sqlx::query!(
        "select status, payment_state, amount, currency from onehold.orders
         where shop_id = $1 and id = $2
         for update",
        shop_id,
        id
    )
    .fetch_optional(conn)
    .await?;
    row.map(|row| {
        let status = Status::from_code(&row.status)
            .ok_or_else(|| sqlx::Error::Decode(format!("an order has the unknown status {}", row.status).into()))?;
        let (payment_state, amount, currency) = (row.payment_state, row.amount, row.currency);
        Ok(LockedOrder { shop_id, id, status, payment_state, amount, currency })
    })
    .transpose()
}

/// Whether an event of this payment was applied to the order before: its success (a mismatch apart, which a
/// right amount mends), or its refund.
pub(super) async fn told_before(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    payment: &str,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (
               select from onehold.payment_events
               where shop_id = $1 and order_id = $2 and payment_id = $3 and state = 'applied'
                 and (effect = 'refunded' or (effect = 'succeeded' and outcome <> 'mismatch'))) as "told!""#,
        shop_id,
        order,
        payment
    )
    .fetch_one(conn)
    .await
}

/// The payment that the order was sold for, where it is known.
pub(super) async fn sold_for(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
) -> Result<Option<String>, sqlx::Error> {
    let payment = sqlx::query_scalar!(
        "select payment_id from onehold.payment_events
         where shop_id = $1 and order_id = $2 and state = 'applied' and outcome = 'converted'",
        shop_id,
        order
    )
    .fetch_optional(conn)
    .await?;
    Ok(payment.flatten())
}

/// How many holds there were, and how many bindings and ledger movements were written for them.
pub(super) struct Bound {
    pub(super) held: i64,
    pub(super) bound: i64,
}

pub(super) async fn convert(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    actor: &str,
) -> Result<Bound, sqlx::Error> {
    // Two statements: a binding's guard must see its hold converted.
    let converted = sqlx::query_scalar!(
        "update onehold.reservations set state = 'converted'
         where shop_id = $1 and order_id = $2 and state = 'held'
         returning id",
        shop_id,
        order
    )
    .fetch_all(&mut *conn)
    .await?;
    let bound = bind(conn, shop_id, &converted).await? + sell(conn, shop_id, &converted, actor).await?;
    Ok(Bound { held: i64::try_from(converted.len()).unwrap_or(i64::MAX), bound })
}

/// Units of stock leave the ledger as their hold ends, so that what can be had stays the same.
async fn sell(conn: &mut PgConnection, shop_id: i32, reservations: &[Uuid], actor: &str) -> Result<i64, sqlx::Error> {
    let done = sqlx::query!(
        "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference, actor)
         select shop_id, sku, location, -quantity, 'sale', 'onehold:sale:' || id, $3
         from onehold.reservations
         where shop_id = $1 and id = any($2) and sku is not null
         order by sku, location",
        shop_id,
        reservations,
        actor
    )
    .execute(conn)
    .await?;
    Ok(i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

async fn bind(conn: &mut PgConnection, shop_id: i32, reservations: &[Uuid]) -> Result<i64, sqlx::Error> {
    let done = sqlx::query!(
        "insert into onehold.bindings (shop_id, reservation_id, asset_id)
         select shop_id, id, asset_id from onehold.reservations
         where shop_id = $1 and id = any($2) and asset_id is not null",
        shop_id,
        reservations
    )
    .execute(conn)
    .await?;
    Ok(i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

/// Converts the orders of those events, each a provider and an id, that pay in full and are the first money; gives
/// their places among `events`, from 1.
pub(super) async fn convert_together(
    pool: &PgPool,
    shop_id: i32,
    events: Vec<(String, String)>,
) -> Result<Vec<i32>, sqlx::Error> {
    let (providers, ids): (Vec<_>, Vec<_>) = events.into_iter().unzip();
    sqlx::query_scalar!(r#"select onehold.convert_together($1, $2, $3) as "n!""#, shop_id, &providers, &ids)
        .fetch_all(pool)
        .await
}

pub(super) async fn mark_converted(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    actor: &str,
    detail: &Value,
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "with converted as (
             update onehold.orders set status = 'converted', payment_state = 'paid'
             where shop_id = $1 and id = $2 and status = 'reserved'
             returning id
         )
         insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
         select $1, id, 'converted', $3, $4 from converted",
        shop_id,
        order,
        actor,
        detail
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub(super) async fn set_payment(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    state: &str,
    kind: &str,
    actor: &str,
    detail: &Value,
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "with paid as (
             update onehold.orders set payment_state = $3 where shop_id = $1 and id = $2
             returning id
         )
         insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
         select $1, id, $4, $5, $6 from paid",
        shop_id,
        order,
        state,
        kind,
        actor,
        detail
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub(super) async fn cancel(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    actor: &str,
    detail: &Value,
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "with cancelled as (
             update onehold.orders set status = 'cancelled'
             where shop_id = $1 and id = $2 and status in ('placed', 'reserved')
             returning id
         )
         insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
         select $1, id, 'cancelled', $3, $4 from cancelled",
        shop_id,
        order,
        actor,
        detail
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub(super) async fn tell(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    kind: &str,
    actor: &str,
    detail: &Value,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into onehold.order_events (shop_id, order_id, kind, actor, detail) values ($1, $2, $3, $4, $5)",
        shop_id,
        order,
        kind,
        actor,
        detail
    )
    .execute(conn)
    .await
    .map(|_| ())
}
