//! Money that succeeded meets its order.

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use super::money::{self, Payment};
use super::sale::{self, Sale};
use super::{Applied, Step, sql};
use crate::allocator::{self, Anew};
use crate::db::Fault;
use crate::orders::{PaymentState, Status};
use crate::payments::inbox::StoredEvent;
use crate::reservations::{self, Standing, Units};

/// Who brings the money, to which order, and whether this is the last try of several.
pub(super) struct Payer<'a> {
    pub(super) order: &'a sql::LockedOrder,
    pub(super) provider: &'a str,
    pub(super) actor: &'a str,
    pub(super) last: bool,
}

/// Converts, or says why the money cannot. The caller has locked the order.
pub(super) async fn pay(tx: &mut PgConnection, payer: &Payer<'_>, event: &StoredEvent) -> Result<Step, Fault> {
    let order = payer.order;
    if order.status == Status::Placed {
        // Not decided yet. The reservation puts this event's job in again.
        return Ok(Step::Done(Applied::Waits));
    }
    let known = money::of_event(tx, order, payer.provider, event).await?;
    if order.status == Status::Converted && event.payment_id.is_none() && known.is_none() {
        // Nobody can say that this is another payment than the one that it was sold for.
        return Ok(Step::Done(Applied::Unchanged));
    }
    let this = money::hear(tx, order, payer.provider, event).await?;
    // One payment, one story: what was decided of it is not decided again. Only one that waits for more is looked at
    // again, when it brings something new.
    let decided = match known {
        None => false,
        Some(known) => match known.state {
            PaymentState::None => false,
            PaymentState::Mismatch => (known.paid, &known.currency) == (this.paid, &this.currency),
            PaymentState::Paid | PaymentState::Late | PaymentState::RefundDue | PaymentState::Refunded => true,
        },
    };
    if decided {
        return Ok(Step::Done(Applied::Unchanged));
    }
    let step = match order.status {
        Status::Placed => Step::Done(Applied::Waits),
        Status::Reserved => settle(tx, payer, &this).await?,
        Status::Expired => late(tx, payer, &this).await?,
        // Paid twice: the sale stands, and the second payment is owed back. What a person ended is never resurrected.
        Status::Converted | Status::Refused | Status::Cancelled | Status::Released => {
            refund_due(tx, payer, &this, json!({"because": order.status.code()})).await?
        }
    };
    // A refund that was heard of before its success.
    money::close_if_back(tx, order, payer.provider, event).await?;
    Ok(step)
}

async fn settle(tx: &mut PgConnection, payer: &Payer<'_>, this: &Payment) -> Result<Step, Fault> {
    let order = payer.order;
    let (shop_id, id) = (order.shop_id, order.id);
    match reservations::standing(tx, shop_id, id).await? {
        Standing::Lapsed => {
            lapse(tx, order).await?;
            return late(tx, payer, this).await;
        }
        Standing::None => return Err(anyhow::anyhow!("order {id} is reserved and holds nothing").into()),
        Standing::Live => {}
    }
    let payments = money::all(tx, order).await?;
    let sum = money::sum(order, &payments, this);
    if !sum.enough {
        let mut detail = this.facts();
        detail["expected"] = json!({"amount": order.amount, "currency": order.currency});
        detail["received"] = sum.sum.into();
        if this.state != PaymentState::Mismatch {
            money::turn(tx, order, this, PaymentState::Mismatch).await?;
        }
        sql::tell(tx, shop_id, id, "payment_mismatch", payer.actor, &detail).await?;
        return Ok(Step::Done(Applied::Mismatch));
    }
    match sale::sell(tx, order, payer.actor, payer.last).await? {
        Sale::Made => sold(tx, payer, this, &payments).await,
        Sale::Lapsed => {
            lapse(tx, order).await?;
            late(tx, payer, this).await
        }
        Sale::Contended => Ok(Step::TryAgain),
        Sale::NoSubstitute(refusal) => {
            // It can be sold no more, so it keeps nothing either; the parts that were paid before are owed back with
            // the order's end, and this payment here.
            let because = json!({"because": "no_substitute", "refusal": refusal.to_json()});
            reservations::cancel(tx, shop_id, id).await?;
            sql::cancel(tx, shop_id, id, payer.actor, &because).await?;
            refund_due(tx, payer, this, because).await
        }
    }
}

/// The order was sold for this payment and for what waited beside it. What cannot be a part of the price (another
/// currency) has nothing to buy any more.
async fn sold(tx: &mut PgConnection, payer: &Payer<'_>, this: &Payment, payments: &[Payment]) -> Result<Step, Fault> {
    let order = payer.order;
    let mut detail = this.facts();
    let sum = money::sum(order, payments, this);
    if sum.surplus > 0 {
        detail["surplus"] = sum.surplus.into();
    }
    if order.amount.is_some_and(|price| this.paid.is_some_and(|paid| paid < price)) {
        detail["received"] = sum.sum.into();
    }
    money::turn(tx, order, this, PaymentState::Paid).await?;
    for part in payments.iter().filter(|p| money::waits(p) && (&p.provider, &p.id) != (&this.provider, &this.id)) {
        if money::is_part(order, part) {
            money::turn(tx, order, part, PaymentState::Paid).await?;
        } else {
            refund_due(tx, payer, part, json!({"because": "converted"})).await?;
        }
    }
    sql::mark_converted(tx, order.shop_id, order.id, payer.actor, &detail).await?;
    Ok(Step::Done(Applied::Converted))
}

async fn lapse(tx: &mut PgConnection, order: &sql::LockedOrder) -> Result<(), Fault> {
    let expired = reservations::expire(tx, order.shop_id, &[order.id], "worker", Units::GiveBack).await?;
    if expired.is_empty() { Err(anyhow::anyhow!("a lapsed order did not expire").into()) } else { Ok(()) }
}

/// The hold lapsed before the money came. Where the shop wants it so, the order is held anew and sold at once;
/// otherwise, or where it cannot be had any more, the money is owed back. All of it is told.
async fn late(tx: &mut PgConnection, payer: &Payer<'_>, this: &Payment) -> Result<Step, Fault> {
    let order = payer.order;
    let (shop_id, id) = (order.shop_id, order.id);
    if this.state == PaymentState::Mismatch {
        // It was a part of the price until the lapse just now, which has decided of it.
        return Ok(Step::Done(Applied::RefundDue));
    }
    money::turn(tx, order, this, PaymentState::Late).await?;
    sql::tell(tx, shop_id, id, "payment_late", payer.actor, &this.facts()).await?;
    // What was paid before the lapse is owed back since then.
    let sum = money::sum(order, &[], this);
    if !sum.enough {
        return refund_due(tx, payer, this, json!({"because": "amount"})).await;
    }
    match sql::late_money(tx, shop_id).await?.as_str() {
        "reacquire" => {}
        _ => return refund_due(tx, payer, this, json!({"because": "policy"})).await,
    }
    let mut anew = tx.begin().await?;
    let because = match allocator::reacquire(&mut anew, shop_id, id, payer.last).await? {
        Anew::Held(held) => {
            sql::reopen(&mut anew, shop_id, id, payer.actor, &json!({ "reservations": held })).await?;
            match sale::sell(&mut anew, order, payer.actor, payer.last).await? {
                Sale::Made => {
                    let step = sold(&mut anew, payer, this, &[]).await?;
                    anew.commit().await?;
                    return Ok(step);
                }
                Sale::Contended => return Ok(Step::TryAgain),
                Sale::Lapsed => json!({"because": "lapsed"}),
                Sale::NoSubstitute(refusal) => json!({"because": "no_substitute", "refusal": refusal.to_json()}),
            }
        }
        Anew::Contended => return Ok(Step::TryAgain),
        Anew::Short(refusal) => json!({"because": "gone", "refusal": refusal.to_json()}),
    };
    anew.rollback().await?;
    refund_due(tx, payer, this, because).await
}

/// Money for which there is nothing to sell; decided once per payment, since no way leads back to it.
async fn refund_due(
    tx: &mut PgConnection,
    payer: &Payer<'_>,
    payment: &Payment,
    because: Value,
) -> Result<Step, Fault> {
    let mut detail = payment.facts();
    if let (Some(detail), Value::Object(because)) = (detail.as_object_mut(), because) {
        detail.extend(because);
    }
    money::turn(tx, payer.order, payment, PaymentState::RefundDue).await?;
    sql::tell(tx, payer.order.shop_id, payer.order.id, "refund_due", payer.actor, &detail).await?;
    Ok(Step::Done(Applied::RefundDue))
}
