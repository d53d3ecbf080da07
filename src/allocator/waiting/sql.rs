//! Statements on the waiting list.

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Clearing, Freed, LockedOrder};

pub(super) async fn enter(conn: &mut PgConnection, shop_id: i32) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"select onehold.enter_waiting_list($1) as "anyone!""#, shop_id).fetch_one(conn).await
}

/// The next who wants of what was freed, his row locked; and whether his buyer's limit stands in his way (none: it
/// is not known, as another order of his is being decided).
pub(super) async fn next(
    conn: &mut PgConnection,
    shop_id: i32,
    freed: &Freed,
    before: Option<Uuid>,
    passed: &[Uuid],
) -> Result<Option<(LockedOrder, Option<bool>)>, sqlx::Error> {
    let row = sqlx::query!(
        r#"select order_id as "id!", deadline as "deadline!", has_stock_lines as "has_stock_lines!", limited
           from onehold.next_waiting($1, $2, $3, $4, $5, $6)"#,
        shop_id,
        &freed.assets,
        &freed.skus,
        &freed.locations,
        before as Option<Uuid>,
        passed
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let order = LockedOrder {
            shop_id,
            id: row.id,
            status: "placed".to_owned(),
            deadline: row.deadline,
            has_stock_lines: row.has_stock_lines,
            waiting: true,
            may_wait: true,
            over_limit: false,
            anyone_waits: true,
            clearing: Clearing::Never,
        };
        (order, row.limited)
    }))
}

/// Puts a job in for one who wants of what was freed and whose row somebody else has locked.
pub(super) async fn wake_passed_over(
    conn: &mut PgConnection,
    shop_id: i32,
    freed: &Freed,
    passed: &[Uuid],
) -> Result<(), sqlx::Error> {
    sqlx::query_scalar!(
        "select onehold.wake_passed_over($1, $2, $3, $4, $5)",
        shop_id,
        &freed.assets,
        &freed.skus,
        &freed.locations,
        passed
    )
    .fetch_one(conn)
    .await
    .map(|_| ())
}

/// Whether an older order waits for a SKU or category that this one asks for.
pub(super) async fn anyone_before(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (
               select from onehold.order_lines l
               join onehold.order_lines w
                 on w.shop_id = $1 and w.waits and w.order_id < $2
                    and coalesce(w.sku, w.asset->>'category') = coalesce(l.sku, l.asset->>'category')
               where l.shop_id = $1 and l.order_id = $2) as "anyone!""#,
        shop_id,
        order
    )
    .fetch_one(conn)
    .await
}

/// Whether someone of those before `before` wants of what stands free, but for those of `passed`.
pub(super) async fn anyone_fits(
    conn: &mut PgConnection,
    shop_id: i32,
    free: &Freed,
    before: Uuid,
    passed: &[Uuid],
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (select onehold.waiting_that_fit($1, $2, $3, $4, $5, $6)) as "fits!""#,
        shop_id,
        &free.assets,
        &free.skus,
        &free.locations,
        before,
        passed
    )
    .fetch_one(conn)
    .await
}

/// What the ended reservations of these orders kept, at most `limit` assets and pools each.
pub(super) async fn freed_by(
    conn: &mut PgConnection,
    shop_id: i32,
    orders: &[Uuid],
    limit: i64,
) -> Result<Freed, sqlx::Error> {
    sqlx::query_as!(
        Freed,
        r#"with kept as materialized (
               select asset_id, sku, location from onehold.reservations
               where shop_id = $1 and order_id = any($2) and state <> 'held'
           ), pools as (
               select distinct sku, location from kept where sku is not null limit $3
           )
           select array(select asset_id from kept where asset_id is not null limit $3) as "assets!",
                  coalesce((select array_agg(sku order by sku, location) from pools), '{}') as "skus!",
                  coalesce((select array_agg(location order by sku, location) from pools), '{}') as "locations!""#,
        shop_id,
        orders,
        limit
    )
    .fetch_one(conn)
    .await
}

/// The pools that the stock lines of an order may draw on, at most `limit`.
pub(super) async fn pools_of(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    limit: i64,
) -> Result<(Vec<String>, Vec<String>), sqlx::Error> {
    let rows = sqlx::query!(
        "select distinct s.sku, s.location from onehold.order_lines l
         join onehold.stock_levels s on s.shop_id = l.shop_id and s.sku = l.sku
             and (l.locations is null or s.location = any (l.locations))
         where l.shop_id = $1 and l.order_id = $2 and l.sku is not null
         order by s.sku, s.location
         limit $3",
        shop_id,
        order,
        limit
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.sku, row.location)).unzip())
}

pub(super) async fn asset_id(conn: &mut PgConnection, shop_id: i32, key: &str) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "select id from onehold.assets where shop_id = $1 and key = $2 and deleted_at is null",
        shop_id,
        key
    )
    .fetch_optional(conn)
    .await
}

pub(super) async fn begin(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    refusal: &Value,
) -> Result<(), sqlx::Error> {
    sqlx::query!("select onehold.begin_to_wait($1, $2, $3)", shop_id, order, refusal).execute(conn).await.map(|_| ())
}

/// Takes an order that waits no more out of the index of those who wait.
pub(super) async fn end(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update onehold.order_lines set waits = false where shop_id = $1 and order_id = $2 and waits",
        shop_id,
        order
    )
    .execute(conn)
    .await
    .map(|_| ())
}

/// Puts a job in for a waiting order, to be run after `seconds`.
pub(super) async fn wake(conn: &mut PgConnection, shop_id: i32, order: Uuid, seconds: f64) -> Result<(), sqlx::Error> {
    sqlx::query_scalar!("select onehold.wake($1, $2, make_interval(secs => $3))", shop_id, order, seconds)
        .fetch_one(conn)
        .await
        .map(|_| ())
}

/// As [`wake`] at once, where each of its lines looks as if it could be filled.
pub(super) async fn wake_if_fillable(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query_scalar!("select case when onehold.looks_fillable($1, $2) then onehold.wake($1, $2) end", shop_id, order)
        .fetch_one(conn)
        .await
        .map(|_| ())
}

pub(super) async fn wake_waiting(conn: &mut PgConnection, shop_id: i32, limit: i32) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select onehold.wake_waiting($1, $2) as "woken!""#, shop_id, limit).fetch_one(conn).await
}
