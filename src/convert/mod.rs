//! Convert: a payment event is applied to its order; a paid hold becomes a sale in one transaction.
//!
//! The order is locked first, then the event is read again: of several events for one order, and of one
//! event's job run twice, each sees what the one before decided.

mod money;
mod pay;
mod sale;
mod sql;
mod together;

pub use together::Converter;

use std::time::Duration;

use rand::Rng as _;
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
    /// The buyer's bank has taken the payment up; nothing was released.
    Disputed,
    /// The provider gave the payment up: the hold was cancelled.
    Abandoned,
    /// The order does not exist yet, or is not decided yet: the event is kept for then.
    Waits,
    /// This event was applied before.
    AlreadySettled,
    /// There is no such event.
    NoSuchEvent,
}

/// How often a payment whose order others keep from being held anew is tried before that is final.
const MOST_ROUNDS: u32 = 5;

/// What one run of the transaction came to.
#[derive(Clone, Copy)]
enum Step {
    Done(Applied),
    /// Others have locked what would do: worth another try. Nothing is kept.
    TryAgain,
}

/// Applies a stored payment event. The convert job's work.
///
/// Safe to repeat: an event that is settled is passed over, and a payment that was decided is not decided again.
///
/// # Errors
/// Faults of the database only.
pub async fn apply(db: &Db, shop_id: i32, provider: &str, event_id: &str) -> Result<Applied, Fault> {
    let mut round = 1;
    loop {
        let last = round >= MOST_ROUNDS;
        let (step, served) = db
            .transaction("convert", |mut tx| {
                Box::pin(async move {
                    let mut served = Vec::new();
                    let step = apply_in(&mut tx, shop_id, (provider, event_id), last, &mut served).await?;
                    Ok(match step {
                        Step::TryAgain
                        | Step::Done(Applied::Waits | Applied::AlreadySettled | Applied::NoSuchEvent) => {
                            Verdict::Rollback((step, served))
                        }
                        Step::Done(
                            Applied::Converted
                            | Applied::Unchanged
                            | Applied::RefundDue
                            | Applied::Mismatch
                            | Applied::Failed
                            | Applied::Refunded
                            | Applied::Disputed
                            | Applied::Abandoned,
                        ) => Verdict::Commit((step, served)),
                    })
                })
            })
            .await?;
        match step {
            Step::Done(applied) => {
                waiting::tell(db, &served);
                return Ok(applied);
            }
            Step::TryAgain => {
                let pause = rand::rng().random_range(2..=10_u64 << round);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                round += 1;
            }
        }
    }
}

async fn apply_in(
    tx: &mut PgConnection,
    shop_id: i32,
    (provider, event_id): (&str, &str),
    last: bool,
    served: &mut Vec<Uuid>,
) -> Result<Step, Fault> {
    let Some(mut event) = inbox::load(tx, shop_id, provider, event_id).await? else {
        return Ok(Step::Done(Applied::NoSuchEvent));
    };
    if event.order_ref.is_none() {
        // It names its payment only. Who names the order of that payment may have come since.
        inbox::adopt(tx, shop_id, provider, &event).await?;
        match inbox::load(tx, shop_id, provider, event_id).await? {
            Some(adopted) if adopted.order_ref.is_some() => event = adopted,
            // Whoever names it later applies this one too.
            _ => return Ok(Step::Done(Applied::Unchanged)),
        }
    }
    let Some(id) = sql::find_order(tx, shop_id, event.order_ref.as_deref().unwrap_or_default()).await? else {
        return Ok(Step::Done(Applied::Waits));
    };
    let applied = match decide(tx, shop_id, id, (provider, event_id), last, served).await? {
        Step::Done(applied @ (Applied::Waits | Applied::AlreadySettled)) => return Ok(Step::Done(applied)),
        Step::Done(applied) => applied,
        Step::TryAgain => return Ok(Step::TryAgain),
    };
    // What was said of this payment before anybody named its order.
    for other in inbox::adopt(tx, shop_id, provider, &event).await? {
        if matches!(decide(tx, shop_id, id, (provider, &other), last, served).await?, Step::TryAgain) {
            return Ok(Step::TryAgain);
        }
    }
    Ok(Step::Done(applied))
}

/// Applies one pending event to its order. Gives to `served` who was handed what the order keeps no more.
async fn decide(
    tx: &mut PgConnection,
    shop_id: i32,
    id: Uuid,
    (provider, event_id): (&str, &str),
    last: bool,
    served: &mut Vec<Uuid>,
) -> Result<Step, Fault> {
    let Some(order) = sql::lock_order(tx, shop_id, id).await? else {
        return Ok(Step::Done(Applied::Waits));
    };
    // Now that the order is locked: another run may have settled it meanwhile.
    let event = match inbox::load(tx, shop_id, provider, event_id).await? {
        Some(event) if event.state == EventState::Pending => event,
        _ => return Ok(Step::Done(Applied::AlreadySettled)),
    };
    // Before anything is freed: a hold may turn out to have lapsed, or be given up.
    let anyone_waits = waiting::enter(tx, shop_id).await?;
    let actor = format!("payment:{provider}");
    let applied = match event.effect {
        Effect::Succeeded => {
            let payer = pay::Payer { order: &order, provider, actor: &actor, last };
            match pay::pay(tx, &payer, &event).await? {
                Step::Done(applied) => applied,
                Step::TryAgain => return Ok(Step::TryAgain),
            }
        }
        Effect::Failed => {
            sql::tell(tx, shop_id, id, "payment_failed", &actor, &facts(&event)).await?;
            Applied::Failed
        }
        Effect::Refunded => {
            money::hear(tx, &order, provider, &event).await?;
            sql::tell(tx, shop_id, id, "refunded", &actor, &facts(&event)).await?;
            money::close_if_back(tx, &order, provider, &event).await?;
            Applied::Refunded
        }
        Effect::Disputed => {
            // It is frozen and told, and nothing is released: that is a person's decision.
            money::hear(tx, &order, provider, &event).await?;
            sql::tell(tx, shop_id, id, "payment_disputed", &actor, &facts(&event)).await?;
            Applied::Disputed
        }
        Effect::Abandoned => abandon(tx, &order, &event, &actor).await?,
        Effect::None => Applied::Unchanged,
    };
    if applied != Applied::Waits
        && !inbox::settle(tx, shop_id, provider, event_id, Settled::Applied(id), outcome(applied)).await?
    {
        return Err(anyhow::anyhow!("a payment event was settled under its order's lock").into());
    }
    if anyone_waits {
        // What the order kept and does not keep any more.
        served.extend(waiting::serve_ended(tx, shop_id, &[id]).await?);
    }
    Ok(Step::Done(applied))
}

/// The provider will not collect this money any more: a hold that nobody can pay is given back.
async fn abandon(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    event: &StoredEvent,
    actor: &str,
) -> Result<Applied, Fault> {
    let (shop_id, id) = (order.shop_id, order.id);
    if money::all(tx, order).await?.iter().any(|payment| payment.disputed) {
        // A dispute freezes: nothing is given up for this order without a person.
        return Ok(Applied::Unchanged);
    }
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
        Applied::Disputed => "disputed",
        Applied::Abandoned => "abandoned",
        Applied::Waits => "waits",
        Applied::AlreadySettled => "already_settled",
        Applied::NoSuchEvent => "no_such_event",
    }
}
