//! Statements that count and show why assets can or cannot be had.

use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::stock::Shelf;
use crate::allocator::refusal::Reason;
use crate::stock::requirement::Requirement;

/// How many assets of a category each reason rules out, and what of those that fit is held.
pub(super) struct Counts {
    wrong_location: i64,
    wrong_vendor: i64,
    attribute_mismatch: i64,
    not_ready: i64,
    held: i64,
    bound: i64,
    /// Those that nothing rules out.
    pub(super) free: i64,
    /// Those that only another order's hold rules out.
    pub(super) fitting_held: i64,
    /// Until the first of those holds lapses.
    pub(super) first_lapse_seconds: Option<i64>,
}

impl Counts {
    pub(super) fn of(&self, reason: Reason) -> i64 {
        match reason {
            Reason::WrongLocation => self.wrong_location,
            Reason::WrongVendor => self.wrong_vendor,
            Reason::AttributeMismatch => self.attribute_mismatch,
            Reason::NotReady => self.not_ready,
            Reason::Held => self.held,
            Reason::Bound => self.bound,
            // Of stock, not of assets.
            Reason::InsufficientStock => 0,
        }
    }
}

pub(super) async fn count_reasons(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    wanted: &Requirement,
    attributes: &Value,
) -> Result<Counts, sqlx::Error> {
    sqlx::query_as!(
        Counts,
        r#"with facts as (
               select $3::text[] is not null and a.location <> all($3) as wrong_location,
                      $4::text is not null and a.vendor is distinct from $4 as wrong_vendor,
                      $5::jsonb <> '{}' and not (a.attributes @? (select onehold.attributes_path($5))
                          and ((select onehold.attributes_beyond_path($5)) = '{}' or onehold.attributes_match(
                              a.attributes, (select onehold.attributes_beyond_path($5))))) as attribute_mismatch,
                      a.status <> 'ready' or coalesce(a.available_from > clock_timestamp(), false) as not_ready,
                      -- What this very order holds by now is no reason, and not free either.
                      coalesce(r.state = 'held' and r.order_id = $6, false) as own,
                      coalesce(r.state = 'held' and r.order_id <> $6 and r.expires_at > clock_timestamp(), false)
                          as held,
                      coalesce(r.state = 'converted', false) as bound,
                      r.expires_at
               from onehold.assets a
               left join onehold.reservations r on r.shop_id = a.shop_id and r.id = a.owner_id
               where a.shop_id = $1 and a.category = $2 and a.deleted_at is null
           ), judged as (
               select *, not (wrong_location or wrong_vendor or attribute_mismatch or not_ready or bound or own)
                          as fits
               from facts
           )
           select count(*) filter (where wrong_location) as "wrong_location!",
                  count(*) filter (where wrong_vendor) as "wrong_vendor!",
                  count(*) filter (where attribute_mismatch) as "attribute_mismatch!",
                  count(*) filter (where not_ready) as "not_ready!",
                  count(*) filter (where held) as "held!",
                  count(*) filter (where bound) as "bound!",
                  count(*) filter (where fits and not held) as "free!",
                  count(*) filter (where fits and held) as "fitting_held!",
                  ceil(extract(epoch from min(expires_at) filter (where fits and held) - clock_timestamp()))::bigint
                      as first_lapse_seconds
           from judged"#,
        shop_id,
        wanted.category,
        wanted.locations.as_deref(),
        wanted.vendor,
        attributes,
        order
    )
    .fetch_one(conn)
    .await
}

/// What a question about availability sees of one line.
pub(super) struct Seen {
    pub(super) total: i64,
    pub(super) available: i64,
    pub(super) candidates: Vec<Value>,
    /// The keys of the assets that the line would take, if it would be filled.
    pub(super) takes: Vec<String>,
}

/// The part of a line's candidates that is shown.
#[derive(Clone, Copy)]
pub(super) struct Page {
    pub(super) offset: i64,
    pub(super) limit: i64,
}

pub(super) async fn inspect(
    pool: &PgPool,
    shop_id: i32,
    wanted: &Requirement,
    attributes: &Value,
    quantity: i64,
    taken: &[String],
    page: Page,
) -> Result<Seen, sqlx::Error> {
    let rows = sqlx::query!(
        r#"with facts as (
               select a.key, a.rank, place.n,
                      array_remove(array[
                          case when $3::text[] is not null and place.n is null then 'wrong_location' end,
                          case when $4::text is not null and a.vendor is distinct from $4 then 'wrong_vendor' end,
                          case when $5::jsonb <> '{}' and not (a.attributes @? (select onehold.attributes_path($5))
                              and ((select onehold.attributes_beyond_path($5)) = '{}' or onehold.attributes_match(
                                  a.attributes, (select onehold.attributes_beyond_path($5)))))
                               then 'attribute_mismatch' end,
                          case when a.status <> 'ready' or a.available_from > clock_timestamp()
                               then 'not_ready' end,
                          -- A line before it would hold it.
                          case when r.state = 'held' and r.expires_at > clock_timestamp() or a.key = any($8)
                               then 'held' end,
                          case when r.state = 'converted' then 'bound' end
                      ], null) as reasons
               from onehold.assets a
               left join onehold.reservations r on r.shop_id = a.shop_id and r.id = a.owner_id
               left join lateral (select array_position($3::text[], a.location) as n) place on true
               where a.shop_id = $1 and a.category = $2 and a.deleted_at is null
           ), page as (
               select key, reasons, row_number() over (
                          order by cardinality(reasons) > 0, n nulls last, rank, key) as place
               from facts
               order by place
               offset $6 limit $7
           )
           -- The counts stand on every page, the empty one behind the last included.
           select counted.total as "total!", counted.available as "available!",
                  case when counted.available >= $9 then array(
                      select key from facts where cardinality(reasons) = 0 order by n nulls last, rank, key limit $9
                  ) else '{}' end as "takes!",
                  page.key as "key?", page.reasons as "reasons?"
           from (select count(*) as total, count(*) filter (where cardinality(reasons) = 0) as available
                 from facts) counted
           left join page on true
           order by page.place"#,
        shop_id,
        wanted.category,
        wanted.locations.as_deref(),
        wanted.vendor,
        attributes,
        page.offset,
        page.limit,
        taken,
        quantity
    )
    .fetch_all(pool)
    .await?;
    Ok(Seen {
        total: rows.first().map_or(0, |r| r.total),
        available: rows.first().map_or(0, |r| r.available),
        takes: rows.first().map(|r| r.takes.clone()).unwrap_or_default(),
        candidates: rows
            .into_iter()
            .filter_map(|r| r.key.zip(r.reasons))
            .map(|(key, reasons)| json!({"asset": key, "eligible": reasons.is_empty(), "reasons": reasons}))
            .collect(),
    })
}

/// What each location of these SKUs has at this moment. The pool is counted for the order of the locations only.
pub(super) async fn shelves(pool: &PgPool, shop_id: i32, skus: &[String]) -> Result<Vec<Shelf>, sqlx::Error> {
    sqlx::query_as!(
        Shelf,
        r#"select l.sku, l.location, f.on_hand as "on_hand!", f.pooled as "pooled!",
                  (select coalesce(sum(r.quantity), 0) from onehold.reservations r
                   where r.shop_id = $1 and r.sku = l.sku and r.location = l.location and r.state = 'held'
                     and r.expires_at > clock_timestamp()) as "held!"
           from onehold.stock_levels l
           cross join lateral onehold.pool_figures(l.shop_id, l.sku, l.location) f
           where l.shop_id = $1 and l.sku = any($2)
           order by l.sku, l.location"#,
        shop_id,
        skus
    )
    .fetch_all(pool)
    .await
}
