//! Placing: the order and its reserve job exist both or not at all.

use serde_json::Value;
use uuid::Uuid;

use super::sql;
use crate::db::{Db, Fault};
use crate::queue::catalogue::{CONVERT, RESERVE};

/// What became of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The order is new.
    New(Uuid),
    /// The same key with the same body: this order was placed before.
    Replayed(Uuid),
    /// The key belongs to an order with another body.
    KeyReused,
}

/// Stores an order once per key, with its reserve job, in one transaction. `body` is the request as sent
/// (compared as a JSON value on a replay), `lines` its checked and normalised lines, `actor` who asks
/// (`api:KEYNAME`).
///
/// Safe to repeat: the key makes it once.
///
/// # Errors
/// Faults of the database only.
pub async fn place(
    db: &Db,
    shop_id: i32,
    key: &str,
    body: &Value,
    lines: &Value,
    actor: &str,
) -> Result<Placed, Fault> {
    // One statement, and so a transaction that costs no round trips of its own. It waits for nobody but a
    // placement under the same key, so there is no deadlock to retry.
    let stored = sql::store(db.pool(), shop_id, key, body, lines, actor).await?;
    let id = stored.order_id;
    Ok(match stored.outcome.as_str() {
        "placed" => {
            db.notifier().job(RESERVE.name);
            // Money may have come before the order.
            db.notifier().job(CONVERT.name);
            Placed::New(id)
        }
        "replayed" => Placed::Replayed(id),
        _ => Placed::KeyReused,
    })
}
