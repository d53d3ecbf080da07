//! Money that a person gave back at the provider, without the provider's event.

mod sql;

use serde_json::json;
use uuid::Uuid;

use crate::db::{Db, Fault};

/// Marks the money of an order as given back, where it did not fit the order or nothing was left to sell for it.
/// Gives whether it was so; else nothing is changed. No money moves by this.
///
/// Safe to repeat: the second time nothing is due.
///
/// # Errors
/// Faults of the database only.
pub async fn mark_refunded(db: &Db, shop_id: i32, id: Uuid, actor: &str, reason: Option<&str>) -> Result<bool, Fault> {
    Ok(sql::mark_refunded(db.pool(), shop_id, id, actor, &json!({ "reason": reason })).await?)
}
