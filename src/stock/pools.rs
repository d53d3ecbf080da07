//! Pools: the bounded sets of unit rows that buyers take from.

use super::sql;
use crate::db::{Db, Fault};

/// Refills the pool of a SKU at a location where it has fallen under its low-water mark (half its bound), and takes
/// in what is out beyond its bound or beyond what is there. The refill job's work. Gives how many units were put
/// out.
///
/// Safe to repeat, also at once: one refiller per pool, and the next one finds nothing to do.
///
/// # Errors
/// Faults of the database.
pub async fn refill(db: &Db, shop_id: i32, sku: &str, location: &str) -> Result<u64, Fault> {
    Ok(sql::refill_if_needed(db.pool(), shop_id, sku, location).await?.unsigned_abs())
}
