//! Convert: a payment event is applied to its order; a paid hold becomes a sale in one transaction.
//!
//! The order is locked first, then the event is read again: of several events for one order, and of one
//! event's job run twice, each sees what the one before decided.

mod pay;
mod sql;
mod together;

pub use together::Converter;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::allocator::waiting;
use crate::db::{Db, Fault, Verdict};
use crate::orders::Status;
use crate::payments::Effect;
use crate::payments::inbox::{self, EventState, Settled, StoredEvent};
use crate::reservations::{self, Standing, Units};

/// What became of a payment event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The hold became a sale.
    Converted,
    /// The money was for an order that is sold already, or was given back before: nothing to do.
    Unchanged,
    /// Money for which there is nothing to sell.
    RefundDue,
    /// Amount or currency differs; nothing was converted.
    Mismatch,
    /// The buyer's attempt failed; he may try again.
    Failed,
    /// The money was given back.
    Refunded,
    /// The provider gave the payment up: the hold was cancelled.
    Abandoned,
    /// The order does not exist yet, or is not decided yet: the event is kept for then.
    Waits,
    /// This event was applied before.
    AlreadySettled,
    /// There is no such event.
    NoSuchEvent,
}

/// Applies a stored payment event. The convert job's work.
///
/// Safe to repeat: an event that is settled is passed over, and an order that is sold stays sold.
///
/// # Errors
/// Faults of the database only.
pub async fn apply(db: &Db, shop_id: i32, provider: &str, event_id: &str) -> Result<Applied, Fault> {
    let (applied, served) = db
        .transaction("convert", |mut tx| {
            Box::pin(async move {
                let mut served = Vec::new();
                let applied = apply_in(&mut tx, shop_id, provider, event_id, &mut served).await?;
                Ok(match applied {
                    Applied::Waits | Applied::AlreadySettled | Applied::NoSuchEvent => {
                        Verdict::Rollback((applied, served))
                    }
                    Applied::Converted
                    | Applied::Unchanged
                    | Applied::RefundDue
                    | Applied::Mismatch
                    | Applied::Failed
                    | Applied::Refunded
                    | Applied::Abandoned => Verdict::Commit((applied, served)),
                })
            })
        })
        .await?;
    waiting::tell(db, &served);
    Ok(applied)
}

async fn apply_in(
    tx: &mut PgConnection,
    shop_id: i32,
    provider: &str,
    event_id: &str,
    served: &mut Vec<Uuid>,
) -> Result<Applied, Fault> {
    let Some(event) = inbox::load(tx, shop_id, provider, event_id).await? else {
        return Ok(Applied::NoSuchEvent);
    };
    let Some(reference) = event.order_ref.as_deref() else {
        // It names no order, so none will ever come for it.
        inbox::settle(tx, shop_id, provider, event_id, Settled::Ignored(None), "names_no_order").await?;
        return Ok(Applied::Unchanged);
    };
    let Some(id) = sql::find_order(tx, shop_id, reference).await? else {
        return Ok(Applied::Waits);
    };
    let Some(order) = sql::lock_order(tx, shop_id, id).await? else {
        return Ok(Applied::Waits);
    };
    // Again, now that the order is locked: another run may have settled it meanwhile.
    match inbox::load(tx, shop_id, provider, event_id).await? {
        Some(again) if again.state == EventState::Pending => {}
        _ => return Ok(Applied::AlreadySettled),
    }
    // Before anything is freed: a hold may turn out to have lapsed, or be given up.
    let anyone_waits = waiting::enter(tx, shop_id).await?;
    let actor = format!("payment:{provider}");
    let applied = match event.effect {
        Effect::Succeeded => pay::pay(tx, &order, &event, &actor).await?,
        Effect::Failed => {
            sql::tell(tx, shop_id, id, "payment_failed", &actor, &facts(&event)).await?;
            Applied::Failed
        }
        Effect::Refunded => {
            refund(tx, &order, &event, &actor).await?;
            Applied::Refunded
        }
        Effect::Abandoned => abandon(tx, &order, &event, &actor).await?,
        Effect::None => Applied::Unchanged,
    };
    if applied == Applied::Waits {
        return Ok(applied);
    }
    if !inbox::settle(tx, shop_id, provider, event_id, Settled::Applied(id), outcome(applied)).await? {
        return Err(anyhow::anyhow!("a payment event was settled under its order's lock").into());
    }
    if anyone_waits {
        // What the order kept and does not keep any more.
        *served = waiting::serve_ended(tx, shop_id, &[id]).await?;
    }
    Ok(applied)
}

/// Money went back. A part of it, and that of a payment beside the one that the order was sold for, leave the
/// order's money as it stands; the history tells of both.
async fn refund(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    event: &StoredEvent,
    actor: &str,
) -> Result<(), Fault> {
    let sold_for = sql::sold_for(tx, order.shop_id, order.id).await?;
    let beside = matches!((&sold_for, &event.payment_id), (Some(sold), Some(refunded)) if sold != refunded);
    let partly = matches!((event.amount, order.amount), (Some(back), Some(price)) if back < price);
    if beside || partly {
        sql::tell(tx, order.shop_id, order.id, "refunded", actor, &facts(event)).await?;
    } else {
        sql::set_payment(tx, order.shop_id, order.id, "refunded", "refunded", actor, &facts(event)).await?;
    }
    Ok(())
}

/// The provider will not collect this money any more: a hold that nobody can pay is given back.
async fn abandon(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    event: &StoredEvent,
    actor: &str,
) -> Result<Applied, Fault> {
    let (shop_id, id) = (order.shop_id, order.id);
    match order.status {
        Status::Placed | Status::Reserved => {
            if reservations::standing(tx, shop_id, id).await? == Standing::Lapsed {
                // A lapse and a cancellation are different for ever.
                reservations::expire(tx, shop_id, &[id], "worker", Units::GiveBack).await?;
                return Ok(Applied::Unchanged);
            }
            let holds = reservations::cancel(tx, shop_id, id).await?;
            let mut detail = facts(event);
            detail["holds"] = holds.into();
            sql::cancel(tx, shop_id, id, actor, &detail).await?;
            Ok(Applied::Abandoned)
        }
        Status::Refused | Status::Converted | Status::Expired | Status::Cancelled | Status::Released => {
            Ok(Applied::Unchanged)
        }
    }
}

/// What the history says of a payment.
fn facts(event: &StoredEvent) -> serde_json::Value {
    serde_json::json!({
        "type": event.kind, "payment_id": event.payment_id, "amount": event.amount, "currency": event.currency,
    })
}

/// What the inbox remembers of it.
fn outcome(applied: Applied) -> &'static str {
    match applied {
        Applied::Converted => "converted",
        Applied::Unchanged => "unchanged",
        Applied::RefundDue => "refund_due",
        Applied::Mismatch => "mismatch",
        Applied::Failed => "failed",
        Applied::Refunded => "refunded",
        Applied::Abandoned => "abandoned",
        Applied::Waits => "waits",
        Applied::AlreadySettled => "already_settled",
        Applied::NoSuchEvent => "no_such_event",
    }
}
