//! Money that succeeded meets its order.

use sqlx::{Connection as _, PgConnection};

use super::{Applied, facts, sql};
use crate::db::{Fault, is_named, violated_constraint};
use crate::orders::Status;
use crate::payments::inbox::StoredEvent;
use crate::reservations::{self, Standing, Units};

/// Converts, or says why the money cannot. The caller has locked the order.
pub(super) async fn pay(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    event: &StoredEvent,
    actor: &str,
) -> Result<Applied, Fault> {
    let (shop_id, id) = (order.shop_id, order.id);
    // One payment, one story: another event that speaks of it changes nothing, and a refund of it that was heard
    // of first leaves nothing to convert. Another payment is another story.
    match event.payment_id.as_deref() {
        Some(payment) if sql::told_before(tx, shop_id, id, payment).await? => return Ok(Applied::Unchanged),
        None if matches!(order.payment_state.as_str(), "refunded" | "refund_due") => return Ok(Applied::Unchanged),
        _ => {}
    }
    match order.status {
        // Not decided yet. The reservation puts this event's job in again.
        Status::Placed => Ok(Applied::Waits),
        Status::Reserved => settle(tx, order, event, actor).await,
        // Paid twice: the sale stands, and the second payment is owed back.
        Status::Converted if event.payment_id.is_some() => {
            sql::tell(tx, shop_id, id, "refund_due", actor, &facts(event)).await?;
            Ok(Applied::RefundDue)
        }
        Status::Converted => Ok(Applied::Unchanged),
        Status::Expired => late(tx, order, event, actor).await,
        // Never resurrected.
        Status::Refused | Status::Cancelled | Status::Released => refund_due(tx, order, event, actor).await,
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
    let expired = reservations::expire(tx, order.shop_id, &[order.id], "worker", Units::GiveBack).await?;
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
