//! Statements that turn holds into sales.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::db::expect_one;
use crate::orders::Status;

/// An order whose row is locked.
pub(in crate::convert) struct LockedOrder {
    pub(super) shop_id: i32,
    pub(super) id: Uuid,
    pub(super) status: Status,
    pub(super) amount: Option<i64>,
    pub(super) currency: Option<String>,
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
        "select status, amount, currency from onehold.orders
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
        Ok(LockedOrder { shop_id, id, status, amount: row.amount, currency: row.currency })
    })
    .transpose()
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
             update onehold.orders set status = 'converted'
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

/// Puts an order that lapsed back among those that hold something: its holds were written anew in this transaction.
pub(super) async fn reopen(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    actor: &str,
    detail: &Value,
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "with reopened as (
             update onehold.orders set status = 'reserved'
             where shop_id = $1 and id = $2 and status = 'expired'
             returning id
         )
         insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
         select $1, id, 'reacquired', $3, $4 from reopened",
        shop_id,
        order,
        actor,
        detail
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

/// What the shop does with money that comes after the lapse: `reacquire` or `refund`.
pub(super) async fn late_money(conn: &mut PgConnection, shop_id: i32) -> Result<String, sqlx::Error> {
    sqlx::query_scalar!("select late_money from onehold.shops where id = $1", shop_id).fetch_one(conn).await
}

/// A hold whose asset cannot be delivered any more.
pub(super) struct Withdrawn {
    pub(super) reservation: Uuid,
    pub(super) line: i16,
    pub(super) slot: i16,
    pub(super) asset: Uuid,
    pub(super) key: String,
    pub(super) expires_at: DateTime<Utc>,
}

/// Locks the assets that an order holds, in the one order of locks, and gives those that were withdrawn meanwhile.
pub(super) async fn withdrawn(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
) -> Result<Vec<Withdrawn>, sqlx::Error> {
    sqlx::query_as!(
        Withdrawn,
        r#"-- All are locked, so that none is withdrawn between this look and its sale.
           with held as materialized (
               select r.id, r.line, r.slot, a.id as asset_id, a.key, r.expires_at, a.status
               from onehold.reservations r
               join onehold.assets a on a.shop_id = r.shop_id and a.id = r.asset_id
               where r.shop_id = $1 and r.order_id = $2 and r.state = 'held'
               order by a.id
               for no key update of a
           )
           select id as "reservation!", line as "line!", slot as "slot!", asset_id as "asset!", key as "key!",
                  expires_at as "expires_at!"
           from held where status <> 'ready'"#,
        shop_id,
        order
    )
    .fetch_all(conn)
    .await
}

pub(super) async fn cancel_withdrawn(
    conn: &mut PgConnection,
    shop_id: i32,
    reservations: &[Uuid],
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "update onehold.reservations set state = 'cancelled'
         where shop_id = $1 and id = any($2) and state = 'held'",
        shop_id,
        reservations
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == reservations.len() as u64 { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
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
