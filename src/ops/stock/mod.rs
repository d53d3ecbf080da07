//! Stock by SKU and location, page by page, and the sessions of the database.

mod sql;

use super::Watch;

/// How many rows a page lists.
pub const PAGE: i64 = 50;

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
