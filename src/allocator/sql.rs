//! The allocator's statements.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::attempt::NewHold;
use super::candidates::{Candidate, MOST_CANDIDATES};
use crate::db::expect_one;
use crate::stock::requirement::Requirement;

/// A placed order whose row is locked.
pub(super) struct LockedOrder {
    pub(super) shop_id: i32,
    pub(super) id: Uuid,
    pub(super) status: String,
    /// The deadline that its holds will have.
    pub(super) deadline: DateTime<Utc>,
    /// Whether it asks for units of a SKU.
    pub(super) has_stock_lines: bool,
    /// The number of this acquisition: 1, and one more whenever an order is held anew.
    pub(super) acquisition: i16,
    /// Whether it waits for stock already.
    pub(super) waiting: bool,
    /// Whether its time to wait is not over; never where it did not ask to wait.
    pub(super) may_wait: bool,
    /// Whether it would take its buyer above the shop's limit.
    pub(super) over_limit: bool,
    /// Whether any order of the shop waits for stock.
    pub(super) anyone_waits: bool,
    /// What to do about lapsed holds that stand in its way.
    pub(super) clearing: Clearing,
}

/// What to do about lapsed holds in an order's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clearing {
    /// Expire them where they are met.
    Here,
    /// Somebody waits for what they keep: expire them in a transaction of their own, which serves him first.
    Apart,
    /// Leave them: others are at them, or they are another's to expire.
    Never,
}

/// One line of an order.
pub(super) struct Line {
    pub(super) line: i16,
    pub(super) wanted: Requirement,
    pub(super) quantity: i16,
}

/// Locks a placed order's row, its buyer and the shop's waiting list, the latter for itself `alone` or shared (see the
/// function in the migration).
pub(super) async fn lock_order(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    alone: bool,
) -> Result<Option<LockedOrder>, sqlx::Error> {
    let row = sqlx::query!(
        r#"select status as "status!", deadline as "deadline!", has_stock_lines as "has_stock_lines!",
                  waiting as "waiting!", may_wait as "may_wait!", over_limit as "over_limit!",
                  anyone_waits as "anyone_waits!",
                  -- Read under the order's lock, which the function took.
                  (select coalesce(max(r.acquisition), 0) + 1 from onehold.reservations r
                   where r.shop_id = $1 and r.order_id = $2)::smallint as "acquisition!"
           from onehold.lock_for_reserving($1, $2, $3)"#,
        shop_id,
        order,
        alone
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| LockedOrder {
        shop_id,
        id: order,
        status: row.status,
        deadline: row.deadline,
        has_stock_lines: row.has_stock_lines,
        acquisition: row.acquisition,
        waiting: row.waiting,
        may_wait: row.may_wait,
        over_limit: row.over_limit,
        anyone_waits: row.anyone_waits,
        clearing: if row.anyone_waits { Clearing::Apart } else { Clearing::Here },
    }))
}

pub(super) async fn lines(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<Vec<Line>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select line, asset as "asset!", quantity from onehold.order_lines
           where shop_id = $1 and order_id = $2 and asset is not null
           order by line"#,
        shop_id,
        order
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Line {
                line: row.line,
                wanted: serde_json::from_value(row.asset).map_err(|e| sqlx::Error::Decode(e.into()))?,
                quantity: i16::try_from(row.quantity).map_err(|e| sqlx::Error::Decode(e.into()))?,
            })
        })
        .collect()
}

/// The slots of a line that are held already.
pub(super) async fn filled_slots(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    line: i16,
) -> Result<Vec<i16>, sqlx::Error> {
    sqlx::query_scalar!(
        "select slot from onehold.reservations
         where shop_id = $1 and order_id = $2 and line = $3 and state = 'held'",
        shop_id,
        order,
        line
    )
    .fetch_all(conn)
    .await
}

pub(super) async fn list_by_rank(
    conn: &mut PgConnection,
    shop_id: i32,
    category: &str,
    vendor: Option<&str>,
    attributes: &Value,
) -> Result<Vec<Candidate>, sqlx::Error> {
    // Reads sellable_assets_by_rank in its own order: as many rows as are answered, whatever is sold.
    sqlx::query_as!(
        Candidate,
        r#"select id, key, location, vendor, rank, attributes
           from onehold.assets
           where shop_id = $1 and category = $2 and status = 'ready' and owner_id is null
             and (available_from is null or available_from <= clock_timestamp())
             and ($3::text is null or vendor = $3)
             and ($4::jsonb = '{}' or attributes @? (select onehold.attributes_path($4))
                  and ((select onehold.attributes_beyond_path($4)) = '{}'
                       or onehold.attributes_match(attributes, (select onehold.attributes_beyond_path($4)))))
           order by rank, key
           limit $5"#,
        shop_id,
        category,
        vendor,
        attributes,
        MOST_CANDIDATES
    )
    .fetch_all(conn)
    .await
}

pub(super) async fn list_by_location(
    conn: &mut PgConnection,
    shop_id: i32,
    category: &str,
    locations: &[String],
    vendor: Option<&str>,
    attributes: &Value,
) -> Result<Vec<Candidate>, sqlx::Error> {
    // One short index scan per location, so that a preferred place with few assets does not cost a walk
    // through all the others. A place named twice counts where it is named first.
    sqlx::query_as!(
        Candidate,
        r#"select a.id as "id!", a.key as "key!", a.location as "location!", a.vendor, a.rank as "rank!",
                  a.attributes as "attributes!"
           from (select name, min(n) as n from unnest($3::text[]) with ordinality l (name, n) group by name) place
           cross join lateral (
               select id, key, location, vendor, rank, attributes
               from onehold.assets
               where shop_id = $1 and category = $2 and location = place.name
                 and status = 'ready' and owner_id is null
                 and (available_from is null or available_from <= clock_timestamp())
                 and ($4::text is null or vendor = $4)
                 and ($5::jsonb = '{}' or attributes @? (select onehold.attributes_path($5))
                      and ((select onehold.attributes_beyond_path($5)) = '{}'
                           or onehold.attributes_match(attributes, (select onehold.attributes_beyond_path($5)))))
               order by rank, key
               limit $6
           ) a
           order by place.n, a.rank, a.key
           limit $6"#,
        shop_id,
        category,
        locations,
        vendor,
        attributes,
        MOST_CANDIDATES
    )
    .fetch_all(conn)
    .await
}

pub(super) async fn lock_first(
    conn: &mut PgConnection,
    shop_id: i32,
    wanted: &Requirement,
    attributes: &Value,
    listed: &[Uuid],
    locations: &[String],
) -> Result<Option<Uuid>, sqlx::Error> {
    // Rows are locked in list order and the limit stops at the first: a row that another has locked is
    // passed over; one that was taken, moved or changed since the list is seen as it is now and drops out.
    sqlx::query_scalar!(
        "select a.id
         from unnest($2::uuid[], $3::text[]) with ordinality listed (id, location, n)
         join onehold.assets a on a.shop_id = $1 and a.id = listed.id
         where a.status = 'ready' and a.owner_id is null
           and (a.available_from is null or a.available_from <= clock_timestamp())
           and a.location = listed.location and a.category = $4
           and ($5::text is null or a.vendor = $5)
           and ($6::jsonb = '{}' or onehold.attributes_match(a.attributes, $6))
         order by listed.n
         limit 1
         for update of a skip locked",
        shop_id,
        listed,
        locations,
        wanted.category,
        wanted.vendor,
        attributes
    )
    .fetch_optional(conn)
    .await
}

pub(super) async fn insert_hold(conn: &mut PgConnection, new: &NewHold<'_>) -> Result<(), sqlx::Error> {
    // With values, not from a select: a trigger's error keeps its constraint's name on a shard too.
    sqlx::query!(
        "insert into onehold.reservations
             (shop_id, id, order_id, line, slot, acquisition, state, asset_id, location, quantity, reason, expires_at)
         values ($1, $2, $3, $4, $5, $6, 'held', $7, $8, 1, $9, $10)",
        new.shop_id,
        Uuid::now_v7(),
        new.order,
        new.line,
        new.slot,
        new.acquisition,
        new.asset,
        new.location,
        new.reason,
        new.expires_at
    )
    .execute(conn)
    .await
    .map(|_| ())
}

/// Orders whose lapsed holds stand on assets that meet the requirement, longest lapsed first.
pub(super) async fn lapsed_in_the_way(
    conn: &mut PgConnection,
    shop_id: i32,
    wanted: &Requirement,
    attributes: &Value,
    limit: i64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select order_id from (
               select r.order_id, min(r.expires_at) as deadline
               from onehold.reservations r
               join onehold.assets a on a.shop_id = r.shop_id and a.id = r.asset_id
               where r.shop_id = $1 and r.state = 'held' and r.expires_at <= clock_timestamp()
                 and a.category = $2 and a.status = 'ready'
                 and ($3::text[] is null or a.location = any($3))
                 and ($4::text is null or a.vendor = $4)
                 and ($5::jsonb = '{}' or a.attributes @? (select onehold.attributes_path($5))
                      and ((select onehold.attributes_beyond_path($5)) = '{}'
                           or onehold.attributes_match(a.attributes, (select onehold.attributes_beyond_path($5)))))
               group by r.order_id
           ) of_orders
           order by deadline
           limit $6"#,
        shop_id,
        wanted.category,
        wanted.locations.as_deref(),
        wanted.vendor,
        attributes,
        limit
    )
    .fetch_all(conn)
    .await
}

/// The refusal of a line that lacks `missing` assets, counted over its whole category (see the function in the
/// migration). `contended`: the search ended with candidates left that others had.
pub(super) async fn refusal(
    conn: &mut PgConnection,
    order: &LockedOrder,
    line: &Line,
    missing: i64,
    contended: bool,
) -> Result<Value, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select onehold.asset_refusal($1, $2, $3, $4, $5, $6) as "refusal!""#,
        order.shop_id,
        order.id,
        i32::from(line.line),
        serde_json::to_value(&line.wanted).map_err(|e| sqlx::Error::Encode(e.into()))?,
        missing,
        contended
    )
    .fetch_one(conn)
    .await
}

pub(super) async fn refuse(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    refusal: &Value,
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "with refused as (
             update onehold.orders set status = 'refused', refusal = $3
             where shop_id = $1 and id = $2 and status = 'placed'
             returning id
         ), told as (
             insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
             select $1, id, 'refused', 'worker', $3 from refused
         ), no_more_waiting as (
             update onehold.order_lines set waits = false where shop_id = $1 and order_id = $2 and waits
         )
         -- Money that came early is owed back.
         select onehold.enqueue_payments($1, id, 'refused') from refused",
        shop_id,
        order,
        refusal
    )
    .fetch_all(conn)
    .await?;
    expect_one(done.len() as u64)
}

pub(super) async fn mark_reserved(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query!("select onehold.mark_reserved($1, $2)", shop_id, order).execute(conn).await.map(|_| ())
}

/// What the quick way came to for one order: reserved, refused and why, decided or apart; and whether a refill was
/// enqueued.
pub(super) struct Reserved {
    pub(super) order: Uuid,
    pub(super) outcome: String,
    pub(super) woke: bool,
    pub(super) refusal: Option<Value>,
}

/// Tries the quick way for each of the orders (see the function in the migration). One statement, so that the
/// transaction costs no round trips of its own.
pub(super) async fn reserve_batch(pool: &PgPool, shop_id: i32, orders: &[Uuid]) -> Result<Vec<Reserved>, sqlx::Error> {
    sqlx::query_as!(
        Reserved,
        r#"select order_id as "order!", outcome as "outcome!", woke as "woke!", refusal
           from onehold.reserve_batch($1, $2)"#,
        shop_id,
        orders
    )
    .fetch_all(pool)
    .await
}
