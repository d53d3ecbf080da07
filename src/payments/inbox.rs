//! The inbox: each provider event is kept once, whatever becomes of it, and its convert job is put into the
//! queue in the same statement.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use uuid::Uuid;

use super::event::PaymentEvent;
use super::{Effect, Provider, sql};
use crate::db::{Batcher, Db, Fault};
use crate::queue::catalogue::CONVERT;

/// What became of an event that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Kept, and its job enqueued where it can have an effect.
    Stored,
    /// Known already; nothing happened.
    Duplicate,
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventState {
    /// Waits for its order, or for the order's reservation.
    Pending,
    /// Had its effect on an order.
    Applied,
    /// Has no effect and never will have.
    Ignored,
}

impl EventState {
    /// The frozen name, as it stands in the database.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Applied => "applied",
            Self::Ignored => "ignored",
        }
    }

    fn from_code(code: &str) -> Option<Self> {
        [Self::Pending, Self::Applied, Self::Ignored].into_iter().find(|state| state.code() == code)
    }
}

/// How a pending event can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It had its effect on this order.
    Applied(Uuid),
    /// It has none; the order, where it is known.
    Ignored(Option<Uuid>),
}

/// An event as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The provider's own name for what happened.
    pub kind: String,
    /// What that means to the order.
    pub effect: Effect,
    /// The order's id or reference, as the provider gave it (exact, never normalised).
    pub order_ref: Option<String>,
    /// The provider's id of the payment; several events can share it.
    pub payment_id: Option<String>,
    /// In the currency's minor unit.
    pub amount: Option<i64>,
    /// Three upper-case letters.
    pub currency: Option<String>,
    /// When it was stored, by the database's clock.
    pub received_at: DateTime<Utc>,
    /// Where it stands.
    pub state: EventState,
    /// The order it was applied to.
    pub order_id: Option<Uuid>,
    /// What became of it, as a code.
    pub outcome: Option<String>,
}

/// Keeps a verified event of a shop: `payload` is the raw body whose signature was verified. An event that
/// has an effect and names an order gets a convert job in the same statement, and the queue is woken.
///
/// # Errors
/// A database that could not be reached or that refused; then nothing is kept and no job exists.
pub async fn receive(
    db: &Db,
    shop_id: i32,
    provider: Provider,
    event: &PaymentEvent,
    payload: &[u8],
) -> Result<Received, Fault> {
    let kept = sql::keep(db.pool(), shop_id, provider.code(), event, payload).await?;
    if kept.enqueued {
        db.notifier().job(CONVERT.name);
    }
    Ok(if kept.stored { Received::Stored } else { Received::Duplicate })
}

/// How long a batch waits for an event that another transaction is storing, before it is split: all of it waits.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Keeps events that come at the same moment in one commit. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inbox {
    db: Db,
    batcher: Batcher<(&'static str, PaymentEvent, Vec<u8>), Received>,
}

impl Inbox {
    /// Begins to take events in; ends when the last clone is dropped. Must be called on a Tokio runtime.
    #[must_use]
    pub fn start(db: &Db) -> Self {
        let notifier = db.notifier().clone();
        let work = Arc::new(move |lanes, shop_id, events: Vec<(&'static str, PaymentEvent, Vec<u8>)>| {
            let notifier = notifier.clone();
            let batch: BoxFuture<'static, _> = Box::pin(async move {
                let kept = sql::keep_together(&lanes, shop_id, &events).await?;
                if kept.iter().any(|kept| kept.enqueued) {
                    notifier.job(CONVERT.name);
                }
                let of = |n: usize| {
                    let kept = kept.iter().find(|kept| usize::try_from(kept.n) == Ok(n))?;
                    Some(if kept.stored { Received::Stored } else { Received::Duplicate })
                };
                Ok((1..=events.len()).map(of).collect())
            });
            batch
        });
        Self { db: db.clone(), batcher: Batcher::start(db, "inbox", LOCK_TIMEOUT, work) }
    }

    /// As [`receive`], and in company where there is any.
    ///
    /// # Errors
    /// A database that could not be reached or that refused; then nothing is kept and no job exists.
    pub async fn receive(
        &self,
        shop_id: i32,
        provider: Provider,
        event: PaymentEvent,
        payload: &[u8],
    ) -> Result<Received, Fault> {
        // Whose payment it is must be looked up, and may stand in the same batch.
        if event.order_ref.is_none() {
            return receive(&self.db, shop_id, provider, &event, payload).await;
        }
        match self.batcher.ask(shop_id, (provider.code(), event.clone(), payload.to_vec())).await {
            Some(received) => Ok(received),
            None => receive(&self.db, shop_id, provider, &event, payload).await,
        }
    }
}

/// One event of a shop, by `provider` code and the provider's event id; none where there is none. Takes no
/// lock: [`settle`] is the compare-and-set.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn load(
    conn: &mut PgConnection,
    shop_id: i32,
    provider: &str,
    event_id: &str,
) -> Result<Option<StoredEvent>, Fault> {
    let Some(row) = sql::event(conn, shop_id, provider, event_id).await? else { return Ok(None) };
    Ok(Some(StoredEvent {
        effect: Effect::from_code(&row.effect).ok_or_else(|| anyhow::anyhow!("unknown effect {}", row.effect))?,
        state: EventState::from_code(&row.state).ok_or_else(|| anyhow::anyhow!("unknown event state {}", row.state))?,
        kind: row.kind,
        order_ref: row.order_ref,
        payment_id: row.payment_id,
        amount: row.amount,
        currency: row.currency,
        received_at: row.received_at,
        order_id: row.order_id,
        outcome: row.outcome,
    }))
}

/// Ends a pending event, with what became of it as a code. False where it is not pending (any more):
/// another run has settled it, and this one must undo what it did.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn settle(
    conn: &mut PgConnection,
    shop_id: i32,
    provider: &str,
    event_id: &str,
    end: Settled,
    outcome: &str,
) -> Result<bool, Fault> {
    let (order, state) = match end {
        Settled::Applied(order) => (Some(order), EventState::Applied),
        Settled::Ignored(order) => (order, EventState::Ignored),
    };
    let rows = sql::settle(conn, shop_id, provider, event_id, order, state.code(), outcome).await?;
    Ok(rows == 1)
}
