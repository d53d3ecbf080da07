//! Finding orders, and what stands beside one: its payment events and its jobs. Every list is bounded.

mod sql;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Watch, jobs::Job, redact};
use crate::db::Db;
use crate::queue::catalogue::{ApplyPayment, CONVERT, RESERVE};
use crate::queue::enqueue;

/// How many orders a page lists.
pub const PAGE: i64 = 50;
const MOST_BESIDE: i64 = 50;
/// What the key of an event's job ends with: who put it in.
const STAGES: [&str; 6] = ["", ":placed", ":reserved", ":refused", ":cancelled", ":requeue"];

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

/// The payment events of an order, oldest first, those that are not applied yet among them.
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

/// The jobs about an order and these payment events of it. Finished ones are there until they are pruned.
///
/// # Errors
/// As of [`list`].
pub async fn jobs(watch: &Watch, shop_id: i32, order: Uuid, payments: &[Payment]) -> Result<Vec<Job>, sqlx::Error> {
    let mut wanted = vec![(RESERVE.name.to_owned(), order.to_string())];
    for payment in payments {
        let event = convert_key(shop_id, payment);
        wanted.extend(STAGES.map(|stage| (CONVERT.name.to_owned(), format!("{event}{stage}"))));
    }
    let (queues, keys): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
    let rows = sql::jobs(watch.pool(), &queues, &keys, MOST_BESIDE).await?;
    Ok(rows.into_iter().map(super::jobs::shown).collect())
}

/// Gives a payment event that is not applied yet another job, as the housekeeping does for one whose job was lost.
/// Gives whether there is such an event of this order.
///
/// Safe to repeat: one key is one job, and an event is applied once.
///
/// # Errors
/// What the database answers.
pub async fn replay(
    watch: &Watch,
    db: &Db,
    shop_id: i32,
    order: Uuid,
    (provider, event): (&str, &str),
) -> Result<bool, sqlx::Error> {
    let all = payments(watch, shop_id, order).await?;
    let mut pending = all.iter().filter(|p| p.state == "pending");
    let Some(payment) = pending.find(|p| p.provider == provider && p.event_id == event) else { return Ok(false) };
    let job = ApplyPayment { v: 1, shop: shop_id, provider: provider.to_owned(), event: event.to_owned() };
    enqueue::job(db.pool(), &format!("{}:requeue", convert_key(shop_id, payment)), &job).await?;
    db.notifier().job(CONVERT.name);
    Ok(true)
}

fn convert_key(shop_id: i32, payment: &Payment) -> String {
    format!("{shop_id}:{}:{}", payment.provider, payment.event_id)
}
