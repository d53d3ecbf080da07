//! The stock room's own statements.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgExecutor;
use uuid::Uuid;

use super::assets::Filter;
use super::description::{Description, Status};
use super::ledger::{Level, Movement};
use super::movement::NewMovement;

/// An asset as it is shown.
pub(super) struct Row {
    pub(super) key: String,
    pub(super) category: String,
    pub(super) location: String,
    pub(super) vendor: Option<String>,
    pub(super) attributes: Value,
    pub(super) status: String,
    pub(super) rank: i32,
    pub(super) available_from: Option<DateTime<Utc>>,
    pub(super) held_by: Option<Uuid>,
    pub(super) bound_to: Option<Uuid>,
    pub(super) updated_at: DateTime<Utc>,
}

/// An asset that this transaction has locked.
pub(super) struct Locked {
    pub(super) id: Uuid,
    pub(super) category: String,
    pub(super) location: String,
    pub(super) status: String,
    pub(super) owner_id: Option<Uuid>,
}

/// Locks an asset until the transaction ends: its owner cannot change meanwhile, as holds and bindings
/// change it by updating this row.
pub(super) async fn lock(db: impl PgExecutor<'_>, shop_id: i32, key: &str) -> Result<Option<Locked>, sqlx::Error> {
    sqlx::query_as!(
        Locked,
        r#"select id, category, location, status, owner_id from onehold.assets
           where shop_id = $1 and key = $2 and deleted_at is null
           for update"#,
        shop_id,
        key
    )
    .fetch_optional(db)
    .await
}

/// The order of a reservation.
pub(super) async fn order_of(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    reservation: Uuid,
) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select order_id from onehold.reservations where shop_id = $1 and id = $2"#,
        shop_id,
        reservation
    )
    .fetch_optional(db)
    .await
}

/// Makes an asset, where there is none under its key; gives how many were made.
pub(super) async fn insert(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    key: &str,
    asset: &Description,
) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        r#"insert into onehold.assets
               (shop_id, key, category, location, vendor, attributes, status, rank, available_from)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
           on conflict (shop_id, key) where deleted_at is null do nothing"#,
        shop_id,
        key,
        asset.category,
        asset.location,
        asset.vendor,
        asset.attributes,
        asset.status.code(),
        asset.rank,
        asset.available_from
    )
    .execute(db)
    .await
    .map(|done| done.rows_affected())
}

/// Describes a locked asset anew; writes nothing where it is so already.
pub(super) async fn update(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    id: Uuid,
    asset: &Description,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"
        -- Its new place is known from now on; the table's trigger sees insertions only.
        with place as (
            insert into onehold.locations (shop_id, name) values ($1, $4) on conflict do nothing
        )
        update onehold.assets
        set category = $3, location = $4, vendor = $5, attributes = $6, status = $7, rank = $8, available_from = $9,
            updated_at = clock_timestamp()
        where shop_id = $1 and id = $2 and deleted_at is null
          and (category, location, vendor, attributes, status, rank, available_from)
              is distinct from ($3, $4, $5, $6, $7, $8, $9)
        "#,
        shop_id,
        id,
        asset.category,
        asset.location,
        asset.vendor,
        asset.attributes,
        asset.status.code(),
        asset.rank,
        asset.available_from
    )
    .execute(db)
    .await
    .map(|_| ())
}

/// Whether any reservation, whatever became of it, is of this asset. A binding has a reservation.
pub(super) async fn has_history(db: impl PgExecutor<'_>, shop_id: i32, id: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (
               select from onehold.reservations where shop_id = $1 and asset_id = $2
           ) as "there!""#,
        shop_id,
        id
    )
    .fetch_one(db)
    .await
}

/// Takes an asset out, but keeps its row; gives how many that were.
pub(super) async fn take_out(db: impl PgExecutor<'_>, shop_id: i32, id: Uuid) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        r#"update onehold.assets
           set status = 'retired', deleted_at = clock_timestamp(), updated_at = clock_timestamp()
           where shop_id = $1 and id = $2 and owner_id is null and deleted_at is null"#,
        shop_id,
        id
    )
    .execute(db)
    .await
    .map(|done| done.rows_affected())
}

/// Removes an asset's row; gives how many that were.
pub(super) async fn remove(db: impl PgExecutor<'_>, shop_id: i32, id: Uuid) -> Result<u64, sqlx::Error> {
    sqlx::query!(r#"delete from onehold.assets where shop_id = $1 and id = $2 and owner_id is null"#, shop_id, id)
        .execute(db)
        .await
        .map(|done| done.rows_affected())
}

/// One asset, with the order that holds it or has bought it.
pub(super) async fn asset(db: impl PgExecutor<'_>, shop_id: i32, key: &str) -> Result<Option<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"select a.key, a.category, a.location, a.vendor, a.attributes, a.status, a.rank, a.available_from, a.updated_at,
               case when r.state = 'held' then r.order_id end as held_by,
               case when r.state = 'converted' then r.order_id end as bound_to
           from onehold.assets a
           left join onehold.reservations r on r.shop_id = a.shop_id and r.id = a.owner_id
           where a.shop_id = $1 and a.key = $2 and a.deleted_at is null"#,
        shop_id,
        key
    )
    .fetch_optional(db)
    .await
}

/// Assets in key order. Walks the index of keys, so that a page costs what it skips: with half a million
/// assets, a filter that fits a hundred of them takes some 60 ms.
pub(super) async fn list(db: impl PgExecutor<'_>, shop_id: i32, filter: &Filter) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"select a.key, a.category, a.location, a.vendor, a.attributes, a.status, a.rank, a.available_from, a.updated_at,
               case when r.state = 'held' then r.order_id end as "held_by?",
               case when r.state = 'converted' then r.order_id end as "bound_to?"
           from onehold.assets a
           left join onehold.reservations r on r.shop_id = a.shop_id and r.id = a.owner_id
           where a.shop_id = $1 and a.deleted_at is null
             and a.key > coalesce($2, '')
             and ($3::text is null or a.category = $3)
             and ($4::text is null or a.location = $4)
             and ($5::text is null or a.status = $5)
           order by a.key
           limit $6"#,
        shop_id,
        filter.after,
        filter.category,
        filter.location,
        filter.status.map(Status::code),
        filter.limit
    )
    .fetch_all(db)
    .await
}

/// What became of a movement: `outcome` is posted, replayed, reference_reused or would_oversell.
pub(super) struct PostedRow {
    pub(super) outcome: String,
    pub(super) movement: Option<Uuid>,
    pub(super) lacking: Option<i64>,
}

pub(super) async fn post_movement(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    new: &NewMovement,
    actor: &str,
) -> Result<PostedRow, sqlx::Error> {
    sqlx::query_as!(
        PostedRow,
        r#"select outcome as "outcome!", movement, lacking
           from onehold.post_movement($1, $2, $3, $4, $5, $6, $7, $8)"#,
        shop_id,
        new.sku,
        new.location,
        new.delta,
        new.kind.code(),
        new.reference,
        actor,
        new.force
    )
    .fetch_one(db)
    .await
}

pub(super) async fn movement(db: impl PgExecutor<'_>, shop_id: i32, id: Uuid) -> Result<Option<Movement>, sqlx::Error> {
    sqlx::query_as!(
        Movement,
        r#"select id, sku, location, delta, kind, reference, actor, at
           from onehold.stock_movements where shop_id = $1 and id = $2"#,
        shop_id,
        id
    )
    .fetch_optional(db)
    .await
}

/// What one pool has.
pub(super) struct Figures {
    pub(super) on_hand: i64,
    pub(super) held: i64,
}

pub(super) async fn figures(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    sku: &str,
    location: &str,
) -> Result<Figures, sqlx::Error> {
    sqlx::query_as!(
        Figures,
        r#"select on_hand as "on_hand!", held as "held!" from onehold.pool_figures($1, $2, $3)"#,
        shop_id,
        sku,
        location
    )
    .fetch_one(db)
    .await
}

/// What a SKU has at each location. One statement, so that it is one moment.
pub(super) async fn levels(db: impl PgExecutor<'_>, shop_id: i32, sku: &str) -> Result<Vec<Level>, sqlx::Error> {
    sqlx::query_as!(
        Level,
        r#"select l.location, f.on_hand as "on_hand!", f.held as "held!", f.on_hand - f.held as "available!",
                  f.pooled as "pooled!", s.units as "shortfall?"
           from onehold.stock_levels l
           cross join lateral onehold.pool_figures(l.shop_id, l.sku, l.location) f
           left join onehold.stock_shortfalls s
             on s.shop_id = l.shop_id and s.sku = l.sku and s.location = l.location and s.cleared_at is null
           where l.shop_id = $1 and l.sku = $2
           order by l.location"#,
        shop_id,
        sku
    )
    .fetch_all(db)
    .await
}

/// Rolls up at most `limit` movements; gives how many.
pub(super) async fn roll_up(db: impl PgExecutor<'_>, shop_id: i32, limit: i32) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select onehold.roll_up($1, $2) as "rolled!""#, shop_id, limit).fetch_one(db).await
}

pub(super) async fn refill_if_needed(
    db: impl PgExecutor<'_>,
    shop_id: i32,
    sku: &str,
    location: &str,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select onehold.refill_if_needed($1, $2, $3) as "put!""#, shop_id, sku, location)
        .fetch_one(db)
        .await
}
