//! Fills the stock lines of an order: units of a SKU, out of pools of unit rows.

mod sql;

use serde::Deserialize;
use sqlx::{Connection as _, PgConnection};

use super::line::Filled;
use super::refusal::{CONTENDED_RETRY_SECONDS, Count, Kind, Reason, Refusal};
use super::sql::{Clearing, LockedOrder};
use crate::db::Fault;
use crate::reservations::{self, Units};

/// The most lapsed orders that one search expires at a time because they stand in its way, and how often.
const MOST_LAPSED: i64 = 100;
const MOST_EXPIRIES: u32 = 20;

/// A line that could not be filled, and what each location of its SKU had.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Short {
    pub(super) line: i16,
    pub(super) places: Vec<Place>,
}

/// What one location had at that instant.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Place {
    pub(super) on_hand: i64,
    pub(super) held: i64,
    /// How much of that has lapsed.
    pub(super) lapsed: i64,
    /// How much of what is held this very order holds by its other lines.
    pub(super) own: i64,
    /// Whether the line wants this location.
    pub(super) wanted: bool,
}

/// Fills every stock line of the order, or says which cannot be filled and why. First without waiting for
/// anyone; then, where that does not do, under the locks of the pools concerned, taken in one order. Says as well
/// whether a refill was enqueued, which the caller makes known after its commit.
pub(super) async fn fill(conn: &mut PgConnection, order: &LockedOrder) -> Result<(Filled, bool), Fault> {
    if let Some(woke) = fill_quickly(conn, order).await? {
        return Ok((Filled::Whole, woke));
    }
    Ok((fill_exactly(conn, order).await?, false))
}

/// Fills every stock line from unit rows that nobody has locked, or none of them. Gives whether a refill was
/// enqueued, or nothing where the rows did not do. Waits for nobody.
pub(super) async fn fill_quickly(conn: &mut PgConnection, order: &LockedOrder) -> Result<Option<bool>, Fault> {
    let mut quick = conn.begin().await?;
    let tried = sql::reserve_stock(&mut quick, order, false).await?;
    if tried.short.is_some() {
        quick.rollback().await?;
        return Ok(None);
    }
    quick.commit().await?;
    Ok(Some(tried.woke))
}

/// Puts units out for the order, into the pools that it may draw on and that nobody else is refilling. Gives
/// whether any were.
pub(super) async fn refill_for(conn: &mut PgConnection, order: &LockedOrder) -> Result<bool, Fault> {
    Ok(sql::refill_for(conn, order).await?)
}

async fn fill_exactly(conn: &mut PgConnection, order: &LockedOrder) -> Result<Filled, Fault> {
    for _ in 0..MOST_EXPIRIES {
        let mut exact = conn.begin().await?;
        let Some(short) = sql::reserve_stock(&mut exact, order, true).await?.short else {
            exact.commit().await?;
            return Ok(Filled::Whole);
        };
        exact.rollback().await?;
        // A lapsed hold is not in the way: it is expired here, without waiting for the sweep.
        let line = sql::stock_line(conn, order, short.line).await?;
        let lapsed = match order.clearing {
            Clearing::Here | Clearing::Apart => sql::lapsed(conn, order.shop_id, &line, MOST_LAPSED).await?,
            Clearing::Never => Vec::new(),
        };
        if order.clearing == Clearing::Apart && !lapsed.is_empty() {
            return Ok(Filled::BehindLapsed);
        }
        if reservations::expire(conn, order.shop_id, &lapsed, "worker", Units::Leave).await?.is_empty() {
            let first_lapse = sql::first_lapse(conn, order, &line).await?;
            return Ok(Filled::Short(refuse(&short, &line, first_lapse)));
        }
    }
    Ok(Filled::BehindLapsed)
}

/// Empty is not sold out: told apart by what the ledger has, what is held, and what others have locked.
fn refuse(short: &Short, line: &sql::StockLine, first_lapse: Option<i64>) -> Refusal {
    let wanted: Vec<&Place> = short.places.iter().filter(|p| p.wanted).collect();
    let quantity = i64::from(line.quantity);
    // A line that may be split counts its locations together; otherwise one must fill it.
    let reaches = |units: &dyn Fn(&Place) -> i64| {
        let each = wanted.iter().map(|p| units(p).max(0));
        if line.split { each.sum::<i64>() >= quantity } else { each.max().unwrap_or(0) >= quantity }
    };
    let (kind, retry_after_seconds) = if reaches(&|p| p.on_hand - p.held) {
        // The units are there, and others have them locked at this moment.
        (Kind::Contended, Some(CONTENDED_RETRY_SECONDS))
    } else if reaches(&|p| p.on_hand - p.held + p.lapsed) {
        // What is in the way has lapsed, and someone is ending it at this moment.
        (Kind::Contended, Some(CONTENDED_RETRY_SECONDS))
    } else if reaches(&|p| p.on_hand - p.own) {
        (Kind::Held, Some(first_lapse.unwrap_or(1).max(1)))
    } else {
        (Kind::Unavailable, None)
    };
    let count = |reason, holds: &dyn Fn(&Place) -> bool| {
        let count = short.places.iter().filter(|p| holds(p)).count();
        Count { reason, count: i64::try_from(count).unwrap_or(i64::MAX) }
    };
    let reasons = [
        count(Reason::WrongLocation, &|p| !p.wanted),
        count(Reason::Held, &|p| p.wanted && p.held > p.own),
        count(Reason::InsufficientStock, &|p| p.wanted && p.on_hand - p.own < quantity),
    ];
    Refusal {
        kind,
        line: short.line,
        retry_after_seconds,
        reasons: reasons.into_iter().filter(|c| c.count > 0).collect(),
    }
}
