//! Statements on what an order had and holds anew.

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Candidate, Had};
use crate::stock::requirement::Requirement;

/// The asset, where it is sellable and meets the requirement at this instant.
pub(super) async fn sellable(
    conn: &mut PgConnection,
    shop_id: i32,
    wanted: &Requirement,
    attributes: &Value,
    asset: Uuid,
) -> Result<Option<Candidate>, sqlx::Error> {
    sqlx::query_as!(
        Candidate,
        r#"select id, key, location, vendor, rank, attributes
           from onehold.assets
           where shop_id = $1 and id = $2 and category = $3 and status = 'ready' and owner_id is null
             and (available_from is null or available_from <= clock_timestamp())
             and ($4::text[] is null or location = any($4))
             and ($5::text is null or vendor = $5)
             and ($6::jsonb = '{}' or onehold.attributes_match(attributes, $6))"#,
        shop_id,
        asset,
        wanted.category,
        wanted.locations.as_deref(),
        wanted.vendor,
        attributes
    )
    .fetch_optional(conn)
    .await
}

/// What the order's asset lines had last, slot by slot.
pub(super) async fn had_last(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    why: &'static str,
) -> Result<Vec<Had>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select distinct on (r.line, r.slot) r.line, r.slot, r.asset_id as "asset!", a.key
           from onehold.reservations r
           join onehold.assets a on a.shop_id = r.shop_id and a.id = r.asset_id
           where r.shop_id = $1 and r.order_id = $2
           order by r.line, r.slot, r.acquisition desc"#,
        shop_id,
        order
    )
    .fetch_all(conn)
    .await?;
    let before = rows.into_iter().map(|r| Had { line: r.line, slot: r.slot, asset: r.asset, key: r.key, why });
    Ok(before.collect())
}

/// What was held anew, for the history: line, slot, asset or SKU, and where.
pub(super) async fn held_by_acquisition(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    acquisition: i16,
) -> Result<Value, sqlx::Error> {
    // The history of a very large order names what it can; the rows name all.
    sqlx::query_scalar!(
        r#"select coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                      'line', h.line, 'slot', h.slot, 'asset', h.key, 'sku', h.sku, 'location', h.location,
                      'quantity', h.quantity, 'before', h.reason->'before')) order by h.line, h.slot), '[]') as "held!"
           from (select r.line, r.slot, a.key, r.sku, r.location, r.quantity, r.reason
                 from onehold.reservations r
                 left join onehold.assets a on a.shop_id = r.shop_id and a.id = r.asset_id
                 where r.shop_id = $1 and r.order_id = $2 and r.acquisition = $3
                 order by r.line, r.slot
                 limit 100) h"#,
        shop_id,
        order,
        acquisition
    )
    .fetch_one(conn)
    .await
}
