//! Stock by SKU and location, page by page, and the sessions of the database.

mod sql;

use chrono::{DateTime, Utc};

use super::Watch;

/// How many rows a page lists.
pub const PAGE: i64 = 50;

/// How many of the shop's last holds tell the pace at which a category is sold.
pub const HOLDS_LOOKED_AT: i64 = 2_000;
/// How many of the shop's last movements are looked through for those of a SKU.
pub const MOVEMENTS_LOOKED_AT: i64 = 10_000;

/// A category that is being sold, and how long it lasts at that pace.
#[derive(Clone, Debug)]
pub struct Lasting {
    /// Which.
    pub category: String,
    /// How many can be had now, at most 1,001.
    pub left: i64,
    /// How many are held and sold an hour.
    pub per_hour: f64,
    /// In so many seconds it is empty.
    pub lasts: f64,
}

/// A movement of stock.
#[derive(Clone, Debug)]
pub struct Movement {
    /// When.
    pub at: DateTime<Utc>,
    /// Where.
    pub location: String,
    /// By how many units on-hand changed.
    pub delta: i32,
    /// receipt, adjustment, return, sale or release.
    pub kind: String,
    /// What it is called by who posted it.
    pub reference: String,
    /// Who posted it.
    pub actor: String,
}

/// What a SKU has at a location.
#[derive(Clone, Debug)]
pub struct Pool {
    /// What.
    pub sku: String,
    /// Where.
    pub location: String,
    /// The sum of the ledger.
    pub on_hand: i64,
    /// What orders hold of it.
    pub held: i64,
    /// Unit rows that are out for sale.
    pub pooled: i64,
    /// What is lacking.
    pub shortfall: i64,
}

/// Sessions of the database that do the same.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// The program that connected.
    pub program: String,
    /// PostgreSQL's word for what they do: active, idle, idle in transaction.
    pub state: String,
    /// What they wait for, if anything.
    pub waits_for: Option<String>,
    /// How many.
    pub n: i64,
    /// For how many seconds the longest has done so.
    pub longest: f64,
}

/// At most [`PAGE`] and one more, after this SKU and location; or all locations of `only`.
///
/// # Errors
/// What the database answers; it works for at most two seconds.
pub async fn pools(
    watch: &Watch,
    shop_id: i32,
    only: Option<&str>,
    after: (&str, &str),
) -> Result<Vec<Pool>, sqlx::Error> {
    if [only.unwrap_or_default(), after.0, after.1].iter().any(|text| text.contains('\0')) {
        return Ok(Vec::new());
    }
    match only {
        Some(sku) => sql::of_sku(watch.pool(), shop_id, sku, PAGE + 1).await,
        None => sql::pools(watch.pool(), shop_id, after.0, after.1, PAGE + 1).await,
    }
}

/// What the sessions of this database do.
///
/// # Errors
/// As of [`pools`].
pub async fn sessions(watch: &Watch) -> Result<Vec<Sessions>, sqlx::Error> {
    sql::sessions(watch.pool()).await
}

/// The twenty categories that will be empty first, by the shop's last [`HOLDS_LOOKED_AT`] holds.
///
/// # Errors
/// As of [`pools`].
pub async fn lasting(watch: &Watch, shop_id: i32) -> Result<Vec<Lasting>, sqlx::Error> {
    sql::lasting(watch.pool(), shop_id, HOLDS_LOOKED_AT).await
}

/// The newest movements of a SKU, at most [`PAGE`], among the shop's last [`MOVEMENTS_LOOKED_AT`].
///
/// # Errors
/// As of [`pools`].
pub async fn movements(watch: &Watch, shop_id: i32, sku: &str) -> Result<Vec<Movement>, sqlx::Error> {
    if sku.contains('\0') {
        return Ok(Vec::new());
    }
    sql::movements(watch.pool(), shop_id, sku, MOVEMENTS_LOOKED_AT, PAGE).await
}
