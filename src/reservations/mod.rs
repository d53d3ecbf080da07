//! Holds: their states, and how they lapse or are cancelled. Only an order whose row is locked moves its
//! reservations, so every ending has one winner.

mod sql;
pub mod state;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::Fault;

/// What becomes of the units of stock whose hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// They become rows of their pools again at once, where nobody else is at it.
    GiveBack,
    /// They stay in the rest: for the allocator, which takes pools' locks in an order of its own and draws on
    /// the rest itself.
    Leave,
}

/// Expires the lapsed holds of those of `orders` that nobody else is deciding right now, judged by the
/// database's clock after the order is locked. An order lapses whole: one lapsed hold ends them all.
/// Gives the orders that were expired; `actor` stands in their history.
///
/// Safe to repeat: an order that is no longer `reserved` is passed over.
///
/// # Errors
/// Faults of the database only.
pub async fn expire(
    conn: &mut PgConnection,
    shop_id: i32,
    orders: &[Uuid],
    actor: &str,
    units: Units,
) -> Result<Vec<Uuid>, Fault> {
    let locked = sql::lock_reserved(conn, shop_id, orders).await?;
    if locked.is_empty() {
        return Ok(locked);
    }
    Ok(sql::expire(conn, shop_id, &locked, actor, units == Units::GiveBack).await?)
}

/// The orders of a shop with a lapsed hold, longest lapsed first; at most `limit`.
///
/// # Errors
/// Faults of the database only.
pub async fn lapsed(conn: &mut PgConnection, shop_id: i32, limit: i64) -> Result<Vec<Uuid>, Fault> {
    Ok(sql::lapsed(conn, shop_id, limit).await?)
}

/// Cancels every hold of an order that its caller has locked. Gives how many there were.
///
/// # Errors
/// Faults of the database only.
pub async fn cancel(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<u64, Fault> {
    let holds = sql::cancel(conn, shop_id, order).await?;
    sql::give_back(conn, shop_id, order).await?;
    Ok(holds)
}

/// Makes the units of an order whose reservations have ended sellable again: rows of their pools, up to the
/// pools' bounds. The caller has ended them in this transaction.
///
/// # Errors
/// Faults of the database only.
pub async fn give_back(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<(), Fault> {
    Ok(sql::give_back(conn, shop_id, order).await?)
}

/// How the live holds of an order stand at this instant, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is held.
    None,
    /// Everything that is held may still be converted.
    Live,
    /// The deadline has passed.
    Lapsed,
}

/// How the holds of an order stand now; the caller has locked the order, so only the clock can change it.
///
/// # Errors
/// Faults of the database only.
pub async fn standing(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<Standing, Fault> {
    let (held, lapsed) = sql::standing(conn, shop_id, order).await?;
    Ok(match (held, lapsed) {
        (0, _) => Standing::None,
        (_, 0) => Standing::Live,
        _ => Standing::Lapsed,
    })
}
