//! One attempt on one locked candidate, under a savepoint of its own.

use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::sql;
use crate::db::{Fault, is_named, violated_constraint};

/// The most inserts tried for one asset wanted.
pub const MOST_ATTEMPTS: u32 = 5;

/// The hold to be written.
#[derive(Clone, Debug)]
pub struct NewHold<'a> {
    /// The shop.
    pub shop_id: i32,
    /// The order.
    pub order: Uuid,
    /// The line, from 1.
    pub line: i16,
    /// The n-th asset of the line, from 1.
    pub slot: i16,
    /// 1, and one more whenever the order is held anew.
    pub acquisition: i16,
    /// The asset.
    pub asset: Uuid,
    /// Where it stands.
    pub location: &'a str,
    /// Why this one.
    pub reason: &'a Value,
    /// The deadline.
    pub expires_at: chrono::DateTime<chrono::Utc>,
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The asset is held.
    Held,
    /// Someone else has the asset.
    Taken,
    /// This slot of the order already has its reservation.
    HasOne,
}

/// Writes the hold. A violated constraint aborts a transaction, and only going back to a savepoint makes
/// it usable again: what the transaction did before survives. Two constraints are answers; any other
/// error ends the transaction.
///
/// # Errors
/// Any error that is not one of the two named violations.
pub async fn hold(conn: &mut PgConnection, new: &NewHold<'_>) -> Result<Attempt, Fault> {
    let mut savepoint = conn.begin().await?;
    let Err(error) = sql::insert_hold(&mut savepoint, new).await else {
        savepoint.commit().await?;
        return Ok(Attempt::Held);
    };
    savepoint.rollback().await?;
    match violated_constraint(&error) {
        Some(name) if is_named(&name, "one_hold_per_asset") || is_named(&name, "one_owner_per_asset") => {
            Ok(Attempt::Taken)
        }
        Some(name) if is_named(&name, "one_reservation_per_slot") => Ok(Attempt::HasOne),
        _ => Err(error.into()),
    }
}
