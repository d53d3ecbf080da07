//! Fills one line of an order: one asset for each of its slots.

use serde_json::json;
use sqlx::PgConnection;

use super::anew::Had;
use super::attempt::{Attempt, MOST_ATTEMPTS, NewHold, hold};
use super::candidates::{Candidate, list, lock_first};
use super::refusal::Refusal;
use super::sql;
use super::sql::Clearing;
use crate::db::Fault;
use crate::reservations::{self, Units};
use crate::stock::requirement::Requirement;

/// The most lapsed orders that one search expires because they stand in its way.
const MOST_LAPSED: i64 = 25;

/// What became of a line.
pub(super) enum Filled {
    Whole,
    Short(Refusal),
    /// So many lapsed holds stand in the way that they are cleared apart, and kept so.
    BehindLapsed,
}

/// What became of one slot.
enum Slot {
    Filled,
    /// The search ended with candidates left that others had, or none at all.
    Empty {
        contended: bool,
    },
    /// Lapsed holds stand in the way that are not to be expired here.
    BehindLapsed,
}

/// Fills every slot of `line`, or says why it cannot be. What the slots had `before` is preferred.
pub(super) async fn fill(
    conn: &mut PgConnection,
    order: &sql::LockedOrder,
    line: &sql::Line,
    before: &[Had],
    last: bool,
) -> Result<Filled, Fault> {
    let has = sql::filled_slots(conn, order.shop_id, order.id, line.line).await?;
    for slot in 1..=line.quantity {
        if has.contains(&slot) {
            continue;
        }
        let before = before.iter().find(|b| (b.line, b.slot) == (line.line, slot));
        match fill_slot(conn, order, line, slot, before).await? {
            Slot::Filled => {}
            Slot::BehindLapsed => return Ok(Filled::BehindLapsed),
            Slot::Empty { contended } => {
                // Lapsed holds that are left in the way are another's at this moment.
                if (contended || order.clearing == Clearing::Never) && !last {
                    // It is tried again at once: counting a whole category would only hold the locks longer.
                    return Ok(Filled::Short(Refusal::contended(line.line)));
                }
                let missing = i64::from(line.quantity - slot) + 1;
                let refusal = sql::refusal(conn, order, line, missing, contended).await?;
                return Ok(Filled::Short(serde_json::from_value(refusal).map_err(anyhow::Error::from)?));
            }
        }
    }
    Ok(Filled::Whole)
}

async fn fill_slot(
    conn: &mut PgConnection,
    order: &sql::LockedOrder,
    line: &sql::Line,
    slot: i16,
    before: Option<&Had>,
) -> Result<Slot, Fault> {
    let wanted = &line.wanted;
    let mut listed = list(conn, order.shop_id, wanted).await?;
    if listed.is_empty() && order.clearing != Clearing::Never {
        // A lapsed hold is not in the way: it is expired here, without waiting for the sweep.
        let attributes = serde_json::to_value(&wanted.attributes).map_err(anyhow::Error::from)?;
        let lapsed = sql::lapsed_in_the_way(conn, order.shop_id, wanted, &attributes, MOST_LAPSED).await?;
        if order.clearing == Clearing::Apart && !lapsed.is_empty() {
            return Ok(Slot::BehindLapsed);
        }
        if !reservations::expire(conn, order.shop_id, &lapsed, "worker", Units::Leave).await?.is_empty() {
            listed = list(conn, order.shop_id, wanted).await?;
        }
    }
    if let Some(before) = before {
        before.put_first(conn, order.shop_id, wanted, &mut listed).await?;
    }
    let (mut from, mut skipped, mut attempts) = (0, 0, 0);
    while attempts < MOST_ATTEMPTS {
        let Some(place) = lock_first(conn, order.shop_id, wanted, &listed[from..]).await? else { break };
        skipped += place;
        attempts += 1;
        let taken = &listed[from + place];
        let mut reason = frozen_reason(wanted, &listed, taken, listed.get(from + place + 1), skipped, attempts);
        if let Some(before) = before {
            before.tell(&mut reason, taken);
        }
        let new = NewHold {
            shop_id: order.shop_id,
            order: order.id,
            line: line.line,
            slot,
            acquisition: order.acquisition,
            asset: taken.id,
            location: &taken.location,
            reason: &reason,
            expires_at: order.deadline,
        };
        match hold(conn, &new).await? {
            Attempt::Held | Attempt::HasOne => return Ok(Slot::Filled),
            Attempt::Taken => from += place + 1,
        }
    }
    // Each statement sees what has just been committed: ask the key once more before saying no.
    if sql::filled_slots(conn, order.shop_id, order.id, line.line).await?.contains(&slot) {
        return Ok(Slot::Filled);
    }
    Ok(Slot::Empty { contended: !listed.is_empty() })
}

/// Everything that a person asks about the decision a month later.
fn frozen_reason(
    wanted: &Requirement,
    listed: &[Candidate],
    taken: &Candidate,
    next: Option<&Candidate>,
    skipped: usize,
    attempts: u32,
) -> serde_json::Value {
    json!({
        "asked": wanted,
        "candidates": listed.len(),
        "skipped": skipped,
        "attempts": attempts,
        "taken": taken.facts(),
        "runner_up": next.map(|n| json!({"facts": n.facts(), "lost_because": n.why_behind(taken, wanted)})),
    })
}
