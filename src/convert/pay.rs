//! Money that succeeded meets its order.

use sqlx::{Connection as _, PgConnection};

use super::{Applied, facts, sql};
use crate::db::{Fault, is_named, violated_constraint};
use crate::payments::inbox::StoredEvent;
use crate::reservations::{self, Standing};

/// Converts, or says why the money cannot. The caller has locked the order.
pub(super) async fn pay(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    event: &StoredEvent,
    actor: &str,
) -> Result<Applied, Fault> {
    match order.payment_state.as_str() {
        // The refund was heard of first; or this money's story is told already.
        "refunded" | "refund_due" => return Ok(Applied::Unchanged),
        _ => {}
    }
    match order.status.as_str() {
        // Not decided yet. The reservation puts this event's job in again.
        "placed" => Ok(Applied::Waits),
        "reserved" => settle(tx, order, event, actor).await,
        "converted" => Ok(Applied::Unchanged),
        "expired" => late(tx, order, event, actor).await,
        // Refused, cancelled, released: never resurrected.
        _ => refund_due(tx, order, event, actor).await,
    }
}

async fn settle(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    event: &StoredEvent,
    actor: &str,
) -> Result<Applied, Fault> {
    let (shop_id, id) = (order.shop_id, order.id);
    match reservations::standing(tx, shop_id, id).await? {
        Standing::Lapsed => {
            lapse(tx, order).await?;
            return late(tx, order, event, actor).await;
        }
        Standing::None => return Err(anyhow::anyhow!("order {id} is reserved and holds nothing").into()),
        Standing::Live => {}
    }
    if !order.expects(event) {
        let mut detail = facts(event);
        detail["expected"] = serde_json::json!({"amount": order.amount, "currency": order.currency});
        sql::set_payment(tx, shop_id, id, "mismatch", "payment_mismatch", actor, &detail).await?;
        return Ok(Applied::Mismatch);
    }
    // The database judges the deadline once more, at the very update. Where it passes between the look
    // above and the update, its refusal is an answer, not a fault.
    let mut savepoint = tx.begin().await?;
    match sql::convert(&mut savepoint, shop_id, id, actor).await {
        Ok(bound) if bound.held > 0 && bound.held == bound.bound => savepoint.commit().await?,
        Ok(bound) => {
            return Err(anyhow::anyhow!("{} of {} holds of order {id} were bound", bound.bound, bound.held).into());
        }
        Err(error) => {
            savepoint.rollback().await?;
            match violated_constraint(&error) {
                Some(name) if is_named(&name, "no_convert_after_the_deadline") => {
                    lapse(tx, order).await?;
                    return late(tx, order, event, actor).await;
                }
                _ => return Err(error.into()),
            }
        }
    }
    sql::mark_converted(tx, shop_id, id, actor, &facts(event)).await?;
    Ok(Applied::Converted)
}

async fn lapse(tx: &mut PgConnection, order: &sql::LockedOrder) -> Result<(), Fault> {
    let expired = reservations::expire(tx, order.shop_id, &[order.id], "worker").await?;
    if expired.is_empty() { Err(anyhow::anyhow!("a lapsed order did not expire").into()) } else { Ok(()) }
}

/// The hold lapsed before the money came. Both are told, so that the history says why it is owed back.
async fn late(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    event: &StoredEvent,
    actor: &str,
) -> Result<Applied, Fault> {
    sql::set_payment(tx, order.shop_id, order.id, "late", "payment_late", actor, &facts(event)).await?;
    refund_due(tx, order, event, actor).await
}

async fn refund_due(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    event: &StoredEvent,
    actor: &str,
) -> Result<Applied, Fault> {
    sql::set_payment(tx, order.shop_id, order.id, "refund_due", "refund_due", actor, &facts(event)).await?;
    Ok(Applied::RefundDue)
}
