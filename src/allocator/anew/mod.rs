//! An order is held anew: as a whole when its money came after the lapse, or slot by slot when an asset was
//! withdrawn while it was held. The same search as ever, with what the order had before put first.

mod sql;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::candidates::Candidate;
use super::line::{Filled, fill};
use super::refusal::{Kind, Refusal};
use super::{sql as orders, units};
use crate::db::Fault;
use crate::stock::requirement::Requirement;

/// What a slot of an order had, and why it has it no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Had {
    /// The line, from 1.
    pub line: i16,
    /// The n-th asset of the line, from 1.
    pub slot: i16,
    /// The asset.
    pub asset: Uuid,
    /// Its key.
    pub key: String,
    /// A frozen code: `lapsed`, or the reason that rules the asset out now.
    pub why: &'static str,
}

impl Had {
    /// Puts the asset that was had before in front of the others, where it can still be had.
    pub(super) async fn put_first(
        &self,
        conn: &mut PgConnection,
        shop_id: i32,
        wanted: &Requirement,
        listed: &mut Vec<Candidate>,
    ) -> Result<(), Fault> {
        let attributes = serde_json::to_value(&wanted.attributes).map_err(anyhow::Error::from)?;
        if let Some(same) = sql::sellable(conn, shop_id, wanted, &attributes, self.asset).await? {
            listed.retain(|candidate| candidate.id != same.id);
            listed.insert(0, same);
        }
        Ok(())
    }

    /// Freezes into the decision what stood there before.
    pub(super) fn tell(&self, reason: &mut Value, taken: &Candidate) {
        let same = taken.id == self.asset;
        reason["before"] = json!({"asset": self.key, "why": self.why, "same": same});
        if same && !reason["runner_up"].is_null() {
            reason["runner_up"]["lost_because"] = "not_held_before".into();
        }
    }
}

/// What came of holding anew.
#[derive(Clone, Debug, PartialEq)]
pub enum Anew {
    /// Everything is held; what, for the history (at most 100 of it).
    Held(Value),
    /// Someone was a moment faster: worth another try.
    Contended,
    /// It cannot be had. Nothing was kept.
    Short(Refusal),
}

/// Holds every line of an order anew whose holds have all lapsed, as the next acquisition, each slot with the asset
/// that it had, or else an equivalent. The caller has locked the order and turns its status. With `last`, contention
/// is an answer like any other.
///
/// # Errors
/// Faults of the database only.
pub async fn reacquire(conn: &mut PgConnection, shop_id: i32, order: Uuid, last: bool) -> Result<Anew, Fault> {
    let before = sql::had_last(conn, shop_id, order, "lapsed").await?;
    hold(conn, shop_id, order, &before, None, last).await
}

/// Holds an equivalent for each of the slots in `before`, whose holds the caller has ended, until the `deadline` that
/// those had. The other slots keep what they have.
///
/// # Errors
/// Faults of the database only.
pub async fn substitute(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    before: &[Had],
    deadline: DateTime<Utc>,
    last: bool,
) -> Result<Anew, Fault> {
    hold(conn, shop_id, order, before, Some(deadline), last).await
}

async fn hold(
    conn: &mut PgConnection,
    shop_id: i32,
    order: Uuid,
    before: &[Had],
    deadline: Option<DateTime<Utc>>,
    last: bool,
) -> Result<Anew, Fault> {
    let mut locked = orders::lock_order(conn, shop_id, order, false)
        .await?
        .ok_or_else(|| anyhow::anyhow!("order {order} is gone under its own lock"))?;
    // Substitutes keep the deadline of what they stand for, and stock lines are never withdrawn.
    let stock_too = locked.has_stock_lines && deadline.is_none();
    locked.deadline = deadline.unwrap_or(locked.deadline);
    let mut lines = orders::lines(conn, shop_id, order).await?;
    lines.sort_by_key(|line| std::cmp::Reverse(line.wanted.conditions()));
    let mut trial = conn.begin().await?;
    let mut filled = Filled::Whole;
    for line in &lines {
        filled = fill(&mut trial, &locked, line, before, last).await?;
        if !matches!(filled, Filled::Whole) {
            break;
        }
    }
    if stock_too && matches!(filled, Filled::Whole) {
        filled = units::fill_anew(&mut trial, &locked).await?;
    }
    match filled {
        Filled::Whole => {
            let held = sql::held_by_acquisition(&mut trial, shop_id, order, locked.acquisition).await?;
            trial.commit().await?;
            Ok(Anew::Held(held))
        }
        Filled::Short(refusal) => {
            trial.rollback().await?;
            Ok(if refusal.kind == Kind::Contended && !last { Anew::Contended } else { Anew::Short(refusal) })
        }
        Filled::BehindLapsed => {
            trial.rollback().await?;
            Ok(if last { Anew::Short(Refusal::contended(1)) } else { Anew::Contended })
        }
    }
}
