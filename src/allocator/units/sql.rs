//! Statements on stock lines.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{LockedOrder, Short};

/// A stock line of an order.
pub(super) struct StockLine {
    pub(super) sku: String,
    pub(super) quantity: i32,
    pub(super) locations: Option<Vec<String>>,
    pub(super) split: bool,
}

/// What became of the stock lines.
pub(super) struct Stocked {
    /// The line that cannot be filled, if there is one.
    pub(super) short: Option<Short>,
    /// Whether a refill was enqueued.
    pub(super) woke: bool,
}

/// Reserves every stock line, or gives the one that cannot be filled (see the function in the migration).
pub(super) async fn reserve_stock(
    conn: &mut PgConnection,
    order: &LockedOrder,
    exact: bool,
) -> Result<Stocked, sqlx::Error> {
    let answer = sqlx::query!(
        r#"select stocked -> 'short' as short, coalesce((stocked ->> 'woke')::boolean, false) as "woke!"
           from onehold.reserve_stock($1, $2, $3, $4) stocked"#,
        order.shop_id,
        order.id,
        order.deadline,
        exact
    )
    .fetch_one(conn)
    .await?;
    let short = answer.short.map(serde_json::from_value).transpose();
    Ok(Stocked { short: short.map_err(|e| sqlx::Error::Decode(e.into()))?, woke: answer.woke })
}

pub(super) async fn refill_for(conn: &mut PgConnection, order: &LockedOrder) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"select onehold.refill_for($1, $2) as "put!""#, order.shop_id, order.id).fetch_one(conn).await
}

pub(super) async fn stock_line(
    conn: &mut PgConnection,
    order: &LockedOrder,
    line: i16,
) -> Result<StockLine, sqlx::Error> {
    sqlx::query_as!(
        StockLine,
        r#"select sku as "sku!", quantity, locations, split from onehold.order_lines
           where shop_id = $1 and order_id = $2 and line = $3"#,
        order.shop_id,
        order.id,
        line
    )
    .fetch_one(conn)
    .await
}

/// Orders whose lapsed holds keep units of the line's SKU, longest lapsed first.
pub(super) async fn lapsed(
    conn: &mut PgConnection,
    shop_id: i32,
    line: &StockLine,
    limit: i64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select distinct order_id from (
               select order_id from onehold.reservations
               where shop_id = $1 and sku = $2 and state = 'held' and expires_at <= clock_timestamp()
                 and ($3::text[] is null or location = any($3))
               order by expires_at
               limit $4
           ) longest_first"#,
        shop_id,
        line.sku,
        line.locations.as_deref(),
        limit
    )
    .fetch_all(conn)
    .await
}

/// In how many seconds the first hold of another order on the line's SKU lapses.
pub(super) async fn first_lapse(
    conn: &mut PgConnection,
    order: &LockedOrder,
    line: &StockLine,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!(
        "select ceil(extract(epoch from min(expires_at) - clock_timestamp()))::bigint
         from onehold.reservations
         where shop_id = $1 and sku = $2 and state = 'held' and order_id <> $3
           and ($4::text[] is null or location = any($4))",
        order.shop_id,
        line.sku,
        order.id,
        line.locations.as_deref()
    )
    .fetch_one(conn)
    .await
}
