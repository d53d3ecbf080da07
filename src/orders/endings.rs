//! How a person ends or prolongs an order: cancel, extend, release. Each locks the order first, so that
//! of a cancellation, a lapse and a conversion that meet, one wins and the others see it.

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Status, sql};
use crate::allocator::waiting;
use crate::db::{Db, Fault, Verdict};
use crate::reservations::{self, Standing};

/// What became of the wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Done.
    Done,
    /// The order had ended before; nothing was changed.
    Unchanged,
    /// The order is sold: it can be released, not cancelled.
    AlreadyConverted,
    /// Nothing is held, or the hold has lapsed.
    NotHeld,
    /// Only a converted order can be released.
    NotConverted,
    /// The shop has no such order.
    NoSuchOrder,
}

/// What the assets of a released order become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRelease {
    /// Sellable at once.
    Ready,
    /// To be looked at first.
    Maintenance,
}

impl AfterRelease {
    fn status(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Maintenance => "maintenance",
        }
    }
}

/// Cancels a placed or reserved order (`onehold.end_by_cancelling`, which SQL callers share): its holds end,
/// and a reserve job that comes later finds it ended.
/// A hold that has lapsed by now expires instead: a lapse and a cancellation are different for ever.
///
/// Safe to repeat: the second time changes nothing.
///
/// # Errors
/// Faults of the database only.
pub async fn cancel(db: &Db, shop_id: i32, id: Uuid, actor: &str, reason: Option<&str>) -> Result<Ending, Fault> {
    let (outcome, served) = db
        .transaction("cancel", |mut tx| {
            Box::pin(async move {
                // Locked here already: the order's row comes before the waiting list.
                sql::lock(&mut tx, shop_id, id).await?;
                let anyone_waits = waiting::enter(&mut tx, shop_id).await?;
                let outcome = sql::cancel(&mut tx, shop_id, id, actor, reason).await?;
                Ok(Verdict::Commit((outcome, serve(&mut tx, anyone_waits, shop_id, id).await?)))
            })
        })
        .await?;
    waiting::tell(db, &served);
    Ok(match outcome.as_str() {
        "done" => {
            // Somebody may be waiting for the order to leave `placed`.
            db.notifier().decided(id);
            Ending::Done
        }
        "unchanged" => Ending::Unchanged,
        "already_converted" => Ending::AlreadyConverted,
        "no_such_order" => Ending::NoSuchOrder,
        other => return Err(anyhow::anyhow!("a cancellation came to {other}").into()),
    })
}

/// Moves the deadline of a live hold to `seconds` from now, never earlier than it is, and at most to
/// the order's own hold times the shop's `most_hold_factor` (four, unless it was changed).
///
/// # Errors
/// Faults of the database only.
pub async fn extend(db: &Db, shop_id: i32, id: Uuid, actor: &str, seconds: i32) -> Result<Ending, Fault> {
    db.transaction("extend", |mut tx| {
        Box::pin(async move {
            let Some(code) = sql::lock(&mut tx, shop_id, id).await? else {
                return Ok(Verdict::Rollback(Ending::NoSuchOrder));
            };
            let live = reservations::standing(&mut tx, shop_id, id).await? == Standing::Live;
            if known(&code)? != Status::Reserved || !live {
                return Ok(Verdict::Rollback(Ending::NotHeld));
            }
            if !sql::extend(&mut tx, shop_id, id, actor, seconds).await? {
                // The deadline passed between the look and the move.
                return Ok(Verdict::Rollback(Ending::NotHeld));
            }
            Ok(Verdict::Commit(Ending::Done))
        })
    })
    .await
}

/// Undoes a converted order: its bindings end, its assets become what `assets` says, and its units come back
/// through the ledger.
///
/// # Errors
/// Faults of the database only.
pub async fn release(
    db: &Db,
    shop_id: i32,
    id: Uuid,
    actor: &str,
    reason: Option<&str>,
    assets: AfterRelease,
) -> Result<Ending, Fault> {
    let (ending, served) = db
        .transaction("release", |mut tx| {
            Box::pin(async move {
                let Some(code) = sql::lock(&mut tx, shop_id, id).await? else {
                    return Ok(Verdict::Rollback((Ending::NoSuchOrder, Vec::new())));
                };
                if known(&code)? != Status::Converted {
                    return Ok(Verdict::Rollback((Ending::NotConverted, Vec::new())));
                }
                let anyone_waits = waiting::enter(&mut tx, shop_id).await?;
                let bindings = sql::end_bindings(&mut tx, shop_id, id, assets.status()).await?;
                let units = sql::return_units(&mut tx, shop_id, id, actor).await?;
                reservations::give_back(&mut tx, shop_id, id).await?;
                let detail =
                    json!({ "reason": reason, "assets": assets.status(), "bindings": bindings, "units": units });
                sql::turn(&mut tx, shop_id, id, Status::Converted, Status::Released, actor, &detail).await?;
                Ok(Verdict::Commit((Ending::Done, serve(&mut tx, anyone_waits, shop_id, id).await?)))
            })
        })
        .await?;
    waiting::tell(db, &served);
    Ok(ending)
}

/// Hands what an ended order kept to those who wait for it.
async fn serve(tx: &mut PgConnection, anyone_waits: bool, shop_id: i32, id: Uuid) -> Result<Vec<Uuid>, Fault> {
    if anyone_waits { waiting::serve_ended(tx, shop_id, &[id]).await } else { Ok(Vec::new()) }
}

fn known(code: &str) -> Result<Status, Fault> {
    Status::from_code(code).ok_or_else(|| anyhow::anyhow!("an order has the unknown status {code}").into())
}
