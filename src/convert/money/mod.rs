//! The payments of an order: what was heard of each is set, never added, so that it is the same in whatever order
//! events arrive; and each moves along the one table of `orders::money`.

mod sql;

use serde_json::Value;
use sqlx::PgConnection;

use super::sql::LockedOrder;
use crate::db::Fault;
use crate::orders::PaymentState;
use crate::payments::Effect;
use crate::payments::inbox::StoredEvent;

/// The most payments of one order that are looked at: beyond it an order is no order but an attack.
const MOST_PAYMENTS: i64 = 1_000;

/// One payment of an order, as far as it was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Payment {
    pub(super) provider: String,
    /// The provider's id; empty for what was said without one.
    pub(super) id: String,
    pub(super) state: PaymentState,
    /// In the currency's minor unit; none where the provider does not say.
    pub(super) paid: Option<i64>,
    pub(super) currency: Option<String>,
    /// All that went back so far.
    pub(super) refunded: i64,
    /// Whether the provider said "all of it", without a sum.
    pub(super) refunded_whole: bool,
    pub(super) disputed: bool,
}

impl Payment {
    fn is_of(&self, provider: &str, event: &StoredEvent) -> bool {
        self.provider == provider && self.id == event.payment()
    }

    /// Whether all of it went back. Where the provider never says how much was paid, the price is taken for it.
    fn is_back(&self, order: &LockedOrder) -> bool {
        match self.paid.or(order.amount) {
            _ if self.refunded_whole => true,
            Some(sum) => self.refunded > 0 && self.refunded >= sum,
            None => self.refunded > 0,
        }
    }

    /// What is left of it for the price: nothing of another currency.
    fn counts(&self, order: &LockedOrder) -> i64 {
        if self.currency != order.currency || self.is_back(order) {
            return 0;
        }
        self.paid.unwrap_or(0).saturating_sub(self.refunded).max(0)
    }

    /// What the history says of it.
    pub(super) fn facts(&self) -> Value {
        sql::facts(self)
    }
}

/// What the money at hand comes to, beside the price.
pub(super) struct Sum {
    /// Whether it reaches the price.
    pub(super) enough: bool,
    /// What there is, in the order's currency.
    pub(super) sum: i64,
    /// How much more than the price.
    pub(super) surplus: i64,
}

/// What `this` payment, and what is left of those that wait beside it, come to. Of `this` all counts that was paid,
/// whatever of it went back meanwhile: had its success been heard of first, it had been enough.
pub(super) fn sum(order: &LockedOrder, payments: &[Payment], this: &Payment) -> Sum {
    let Some(price) = order.amount else { return Sum { enough: true, sum: this.paid.unwrap_or(0), surplus: 0 } };
    let own = if this.currency == order.currency { this.paid } else { None };
    let beside = payments.iter().filter(|p| waits(p) && (&p.provider, &p.id) != (&this.provider, &this.id));
    let sum = beside.fold(own.unwrap_or(0), |sum, p| sum.saturating_add(p.counts(order)));
    // Money that brings nothing of its own completes nothing.
    Sum { enough: own.is_some() && sum >= price, sum, surplus: (sum - price).max(0) }
}

/// Whether it waits for more.
pub(super) fn waits(payment: &Payment) -> bool {
    payment.state == PaymentState::Mismatch
}

/// Whether what waits beside became a part of the price.
pub(super) fn is_part(order: &LockedOrder, payment: &Payment) -> bool {
    waits(payment) && payment.counts(order) > 0
}

/// Every payment of an order that its caller has locked.
pub(super) async fn all(tx: &mut PgConnection, order: &LockedOrder) -> Result<Vec<Payment>, Fault> {
    Ok(sql::of_order(tx, order, MOST_PAYMENTS).await?)
}

/// The payment that `event` speaks of, among those of its order.
pub(super) async fn of_event(
    tx: &mut PgConnection,
    order: &LockedOrder,
    provider: &str,
    event: &StoredEvent,
) -> Result<Option<Payment>, Fault> {
    Ok(all(tx, order).await?.into_iter().find(|p| p.is_of(provider, event)))
}

/// Sets what `event` says of its payment, and gives that.
pub(super) async fn hear(
    tx: &mut PgConnection,
    order: &LockedOrder,
    provider: &str,
    event: &StoredEvent,
) -> Result<Payment, Fault> {
    let (currency, amount) = (event.currency.as_deref(), event.amount);
    let heard = match event.effect {
        Effect::Succeeded => sql::Heard { paid: amount, currency, ..Default::default() },
        Effect::Refunded => {
            sql::Heard { refunded: amount.unwrap_or(0), refunded_whole: amount.is_none(), ..Default::default() }
        }
        Effect::Disputed => sql::Heard { disputed: true, ..Default::default() },
        Effect::Failed | Effect::Abandoned | Effect::None => sql::Heard::default(),
    };
    sql::hear(tx, order, (provider, event.payment()), &heard).await?;
    let heard = of_event(tx, order, provider, event).await?;
    heard.ok_or_else(|| anyhow::anyhow!("a payment of order {} was heard of and is not there", order.id).into())
}

/// Moves a payment; the database refuses what the table does not allow.
pub(super) async fn turn(
    tx: &mut PgConnection,
    order: &LockedOrder,
    payment: &Payment,
    to: PaymentState,
) -> Result<(), Fault> {
    Ok(sql::turn(tx, order, payment, to).await?)
}

/// Turns the payment of `event` into a refunded one, where its success was heard of and all of it went back.
pub(super) async fn close_if_back(
    tx: &mut PgConnection,
    order: &LockedOrder,
    provider: &str,
    event: &StoredEvent,
) -> Result<(), Fault> {
    match of_event(tx, order, provider, event).await? {
        Some(payment) if payment.state.may_become(PaymentState::Refunded) && payment.is_back(order) => {
            turn(tx, order, &payment, PaymentState::Refunded).await
        }
        _ => Ok(()),
    }
}
