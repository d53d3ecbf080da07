//! Finding orders, and what stands beside one: its payment events and its jobs. Every list is bounded.

mod sql;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Watch, jobs::Job, redact};

/// How many orders a page lists.
pub const PAGE: i64 = 50;
const MOST_BESIDE: i64 = 50;

/// An order in a list.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its id.
    pub id: Uuid,
    /// The web app's name for it.
    pub reference: Option<String>,
    /// The code of its status.
    pub status: String,
    /// The code of its money's state.
    pub payment_state: String,
    /// When it was placed.
    pub placed_at: DateTime<Utc>,
    /// Who buys.
    pub buyer: Option<String>,
}

/// Which orders to list, newest first.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Whatever was placed.
    All,
    /// In this status.
    Status(String),
    /// Whose money is in this state: late, mismatch or refund_due.
    Trouble(String),
}

/// A payment event of an order.
#[derive(Clone, Debug)]
pub struct Payment {
    /// `stripe` or `standard`.
    pub provider: String,
    /// The provider's id of it.
    pub event_id: String,
    /// The provider's name of its kind.
    pub kind: String,
    /// What it means to an order.
    pub effect: String,
    /// The provider's id of the payment.
    pub payment_id: Option<String>,
    /// In the currency's minor unit.
    pub amount: Option<i64>,
    /// ISO 4217.
    pub currency: Option<String>,
    /// pending, applied or ignored.
    pub state: String,
    /// What became of it.
    pub outcome: Option<String>,
    /// When it came.
    pub received_at: DateTime<Utc>,
    /// What was sent, without what could be a secret.
    pub payload: String,
}

/// At most [`PAGE`] orders and one more, older than `before`.
///
/// # Errors
/// What the database answers; it works for at most two seconds.
pub async fn list(watch: &Watch, shop_id: i32, wanted: &Wanted, before: Option<Uuid>) -> Result<Vec<Row>, sqlx::Error> {
    // The greatest UUID stands behind every order.
    let before = before.unwrap_or(Uuid::max());
    let pool = watch.pool();
    match wanted {
        Wanted::All => sql::newest(pool, shop_id, before, PAGE + 1).await,
        Wanted::Status(code) => sql::in_status(pool, shop_id, code, before, PAGE + 1).await,
        Wanted::Trouble(state) => sql::in_trouble(pool, shop_id, state, before, PAGE + 1).await,
    }
}

/// The newest orders with this id, reference or payment id, or that hold or held the asset of this key; at most
/// [`PAGE`].
///
/// # Errors
/// As of [`list`].
pub async fn search(watch: &Watch, shop_id: i32, text: &str) -> Result<Vec<Row>, sqlx::Error> {
    // The database takes no U+0000, and no order has one.
    if text.contains('\0') {
        return Ok(Vec::new());
    }
    let id = text.parse::<Uuid>().ok();
    sql::search(watch.pool(), shop_id, text, id, PAGE).await
}

/// The payment events of an order, oldest first.
///
/// # Errors
/// As of [`list`].
pub async fn payments(watch: &Watch, shop_id: i32, order: Uuid) -> Result<Vec<Payment>, sqlx::Error> {
    let rows = sql::payments(watch.pool(), shop_id, order, MOST_BESIDE).await?;
    Ok(rows
        .into_iter()
        .map(|row| Payment {
            payload: redact::shown(&row.payload),
            provider: row.provider,
            event_id: row.event_id,
            kind: row.kind,
            effect: row.effect,
            payment_id: row.payment_id,
            amount: row.amount,
            currency: row.currency,
            state: row.state,
            outcome: row.outcome,
            received_at: row.received_at,
        })
        .collect())
}

/// The jobs about an order and its payment events. Finished ones are there until they are pruned.
///
/// # Errors
/// As of [`list`].
pub async fn jobs(watch: &Watch, shop_id: i32, order: Uuid) -> Result<Vec<Job>, sqlx::Error> {
    let rows = sql::jobs(watch.pool(), shop_id, order, MOST_BESIDE).await?;
    Ok(rows.into_iter().map(super::jobs::shown).collect())
}
