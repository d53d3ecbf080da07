//! The ledger: movements of stock that each count once, and what they come to. On-hand is their sum.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::movement::NewMovement;
use super::sql;
use crate::db::{Db, Fault};

/// How many movements one statement rolls up: few, so that nobody who refills a pool waits behind it for long.
const ROLL_UP_BATCH: i32 = 5_000;
/// A bound on one run, which ends it even where movements come as fast as they are rolled up.
const MOST_ROLL_UPS: u32 = 1_000;

/// A movement as it stands in the ledger for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Movement {
    /// The movement's id.
    pub id: Uuid,
    /// What moved.
    pub sku: String,
    /// Where.
    pub location: String,
    /// How many units came (positive) or went (negative).
    pub delta: i32,
    /// `receipt`, `adjustment`, `return`, `sale` or `release`.
    pub kind: String,
    /// Makes it count once.
    pub reference: String,
    /// Who posted it: `api:KEYNAME`, or `payment:PROVIDER` of a sale.
    pub actor: String,
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
}

/// What one SKU has at one location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Where.
    pub location: String,
    /// The sum of the ledger.
    pub on_hand: i64,
    /// What orders hold.
    pub held: i64,
    /// On-hand minus held. Negative where a forced movement took what was held.
    pub available: i64,
    /// How much of that stands ready as unit rows; the rest follows as they are sold.
    pub pooled: i64,
    /// How many units are held or out for sale without being there, by a movement that was forced. Left out where
    /// nothing is lacking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<i64>,
}

/// What became of a movement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It stands in the ledger, and on-hand follows.
    Posted(Movement),
    /// It stood there before, with the same content: nothing was changed.
    Replayed(Movement),
    /// Another movement of the shop has this reference.
    ReferenceReused,
    /// It would take on-hand below what is held, and was not forced.
    WouldOversell {
        /// What there is.
        on_hand: i64,
        /// What orders hold of it.
        held: i64,
        /// How many units would be lacking. More than the two above say where units are being bought right now.
        lacking: i64,
    },
}

/// Posts a movement, once per reference, as `actor`. One that takes away what is held is refused; forced, it is
/// posted, and the shortfall recorded until stock comes in or holds end. The transaction is the caller's: he rolls
/// back whatever is not [`Posted::Posted`], as unit rows may have been taken in for nothing.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn post(tx: &mut PgConnection, shop_id: i32, new: &NewMovement, actor: &str) -> Result<Posted, Fault> {
    let answer = sql::post_movement(&mut *tx, shop_id, new, actor).await?;
    let movement = match answer.movement {
        Some(id) => sql::movement(&mut *tx, shop_id, id).await?,
        None => None,
    };
    Ok(match (answer.outcome.as_str(), movement) {
        ("posted", Some(movement)) => Posted::Posted(movement),
        ("replayed", Some(movement)) => Posted::Replayed(movement),
        ("reference_reused", _) => Posted::ReferenceReused,
        ("would_oversell", _) => {
            let level = sql::figures(&mut *tx, shop_id, &new.sku, &new.location).await?;
            Posted::WouldOversell {
                on_hand: level.on_hand,
                held: level.held,
                lacking: answer.lacking.unwrap_or_default(),
            }
        }
        (other, _) => return Err(anyhow::anyhow!("a movement was {other}, which is unheard of").into()),
    })
}

/// What a SKU (a checked name) has at each location where it ever moved, in the order of their names; none for a
/// SKU that was never stocked.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn levels(db: &Db, shop_id: i32, sku: &str) -> Result<Vec<Level>, Fault> {
    Ok(sql::levels(db.pool(), shop_id, sku).await?)
}

/// Adds what of a shop's ledger was appended since to the levels, so that reading on-hand stays cheap. Gives how
/// many movements that were.
///
/// Safe to repeat, also at once on several machines and beside sales: a movement is rolled up once, and on-hand
/// is the same before, meanwhile and after.
///
/// # Errors
/// Faults of the database; what was rolled up before stays so.
pub async fn roll_up(db: &Db, shop_id: i32) -> Result<u64, Fault> {
    let mut rolled = 0;
    for _ in 0..MOST_ROLL_UPS {
        let batch = sql::roll_up(db.pool(), shop_id, ROLL_UP_BATCH).await?;
        rolled += batch.unsigned_abs();
        if batch == 0 {
            break;
        }
    }
    Ok(rolled)
}
