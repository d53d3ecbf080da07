//! Statements that show why assets can or cannot be had.

use serde_json::{Value, json};
use sqlx::PgPool;

use super::stock::Shelf;
use crate::stock::requirement::Requirement;

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
