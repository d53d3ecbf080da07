//! Assets: things that exist once. An asset that an order holds or has bought can be described anew, but
//! what the order was promised stays: it is not deleted, retired, re-categorised or moved meanwhile.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::description::{Description, Status};
use super::sql;
use crate::db::{Db, Fault, Verdict, expect_one};

/// How often a put looks again when a neighbour puts and deletes the same key beside it.
const MOST_LOOKS: u32 = 5;

/// An asset, as the API shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Asset {
    /// The seller's own name for it; one live asset per key and shop.
    pub key: String,
    /// What it is sold as.
    pub category: String,
    /// Where it stands.
    pub location: String,
    /// Whose it is.
    pub vendor: Option<String>,
    /// What requirements are compared with: a JSON object.
    pub attributes: Value,
    /// Whether it can be sold.
    pub status: Status,
    /// Lower is allocated first, then key order.
    pub rank: i32,
    /// Not to be sold before this instant.
    pub available_from: Option<DateTime<Utc>>,
    /// The order whose hold keeps it.
    pub held_by: Option<Uuid>,
    /// The order that has bought it.
    pub bound_to: Option<Uuid>,
    /// When it was last described, by the database's clock.
    pub updated_at: DateTime<Utc>,
}

/// What became of a put.
#[derive(Clone, Debug, PartialEq)]
pub enum Put {
    /// There was none under that key.
    Created(Asset),
    /// There was one, and it is now as described; where it was so already, nothing was written.
    Replaced(Asset),
    /// This order holds it or has bought it, and would not get what it was promised.
    InUse(Uuid),
}

/// What became of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The key is free again.
    Done,
    /// There is none under that key.
    NoSuchAsset,
    /// This order holds it or has bought it.
    InUse(Uuid),
}

/// Which assets to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this category only (normalised).
    pub category: Option<String>,
    /// At this location only (normalised).
    pub location: Option<String>,
    /// In this status only.
    pub status: Option<Status>,
    /// After this key.
    pub after: Option<String>,
    /// At most so many.
    pub limit: i64,
}

/// Creates the asset `key`, or describes it anew. `key` is a checked name. The transaction is the caller's, who knows
/// what else happens when something comes free.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn put(tx: &mut PgConnection, shop_id: i32, key: &str, description: &Description) -> Result<Put, Fault> {
    for _ in 0..MOST_LOOKS {
        if let Some(put) = put_in(tx, shop_id, key, description).await? {
            return Ok(put);
        }
    }
    Err(anyhow::anyhow!("others keep putting and deleting asset {key:?}").into())
}

/// One look. None where a neighbour has put or deleted the key since.
async fn put_in(
    tx: &mut PgConnection,
    shop_id: i32,
    key: &str,
    description: &Description,
) -> Result<Option<Put>, Fault> {
    if let Some(found) = sql::lock(&mut *tx, shop_id, key).await? {
        return replace(tx, shop_id, key, &found, description).await;
    }
    match sql::insert(&mut *tx, shop_id, key, description).await? {
        0 => Ok(None),
        _ => Ok(read(tx, shop_id, key).await?.map(Put::Created)),
    }
}

async fn replace(
    tx: &mut PgConnection,
    shop_id: i32,
    key: &str,
    found: &sql::Locked,
    wanted: &Description,
) -> Result<Option<Put>, Fault> {
    let retires = wanted.status == Status::Retired && found.status != Status::Retired.code();
    if retires || wanted.category != found.category || wanted.location != found.location {
        // The lock is held: nobody can take the asset or let go of it until this transaction ends.
        if let Some(order) = user(&mut *tx, shop_id, found.owner_id).await? {
            return Ok(Some(Put::InUse(order)));
        }
    }
    sql::update(&mut *tx, shop_id, found.id, wanted).await?;
    Ok(read(tx, shop_id, key).await?.map(Put::Replaced))
}

/// Deletes the asset `key`. One that orders have had is kept for their history, and is only taken out.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn delete(db: &Db, shop_id: i32, key: &str) -> Result<Deleted, Fault> {
    db.transaction("delete an asset", |mut tx| {
        Box::pin(async move {
            Ok(match delete_in(&mut tx, shop_id, key).await? {
                Deleted::Done => Verdict::Commit(Deleted::Done),
                refused @ (Deleted::NoSuchAsset | Deleted::InUse(_)) => Verdict::Rollback(refused),
            })
        })
    })
    .await
}

async fn delete_in(tx: &mut PgConnection, shop_id: i32, key: &str) -> Result<Deleted, Fault> {
    let Some(found) = sql::lock(&mut *tx, shop_id, key).await? else {
        return Ok(Deleted::NoSuchAsset);
    };
    if let Some(order) = user(&mut *tx, shop_id, found.owner_id).await? {
        return Ok(Deleted::InUse(order));
    }
    let rows = if sql::has_history(&mut *tx, shop_id, found.id).await? {
        sql::take_out(&mut *tx, shop_id, found.id).await?
    } else {
        sql::remove(&mut *tx, shop_id, found.id).await?
    };
    // The row is locked, so nothing can have changed since it was looked at.
    expect_one(rows)?;
    Ok(Deleted::Done)
}

/// The order behind an asset's owner, which is a reservation. Asked in a statement of its own after the
/// lock: joined to the locking statement, it would be the owner of before the wait.
async fn user(tx: &mut PgConnection, shop_id: i32, owner: Option<Uuid>) -> Result<Option<Uuid>, Fault> {
    let Some(owner) = owner else { return Ok(None) };
    let order = sql::order_of(tx, shop_id, owner).await?;
    order.map(Some).ok_or_else(|| anyhow::anyhow!("owner {owner} is no reservation").into())
}

/// The asset `key` of a shop.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn get(db: &Db, shop_id: i32, key: &str) -> Result<Option<Asset>, Fault> {
    sql::asset(db.pool(), shop_id, key).await?.map(Asset::try_from).transpose()
}

async fn read(tx: &mut PgConnection, shop_id: i32, key: &str) -> Result<Option<Asset>, Fault> {
    sql::asset(tx, shop_id, key).await?.map(Asset::try_from).transpose()
}

/// Assets of a shop in key order.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn list(db: &Db, shop_id: i32, filter: &Filter) -> Result<Vec<Asset>, Fault> {
    let rows = sql::list(db.pool(), shop_id, filter).await?;
    rows.into_iter().map(Asset::try_from).collect()
}

impl TryFrom<sql::Row> for Asset {
    type Error = Fault;

    fn try_from(row: sql::Row) -> Result<Self, Fault> {
        let status = Status::from_code(&row.status);
        Ok(Self {
            status: status.ok_or_else(|| anyhow::anyhow!("unknown asset status {}", row.status))?,
            key: row.key,
            category: row.category,
            location: row.location,
            vendor: row.vendor,
            attributes: row.attributes,
            rank: row.rank,
            available_from: row.available_from,
            held_by: row.held_by,
            bound_to: row.bound_to,
            updated_at: row.updated_at,
        })
    }
}
