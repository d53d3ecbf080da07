//! Statements on the payments of an order.

use serde_json::Value;
use sqlx::PgConnection;

use super::{LockedOrder, Payment};
use crate::db::expect_one;
use crate::orders::PaymentState;
use crate::payments::inbox::StoredEvent;

struct Row {
    provider: String,
    payment_id: String,
    state: String,
    paid: Option<i64>,
    currency: Option<String>,
    refunded: i64,
    refunded_whole: bool,
    disputed: bool,
}

impl Row {
    fn show(self) -> Result<Payment, sqlx::Error> {
        let state = PaymentState::from_code(&self.state)
            .ok_or_else(|| sqlx::Error::Decode(format!("a payment has the unknown state {}", self.state).into()))?;
        Ok(Payment {
            state,
            provider: self.provider,
            id: self.payment_id,
            paid: self.paid,
            currency: self.currency,
            refunded: self.refunded,
            refunded_whole: self.refunded_whole,
            disputed: self.disputed,
        })
    }
}

pub(super) async fn of_order(
    conn: &mut PgConnection,
    order: &LockedOrder,
    limit: i64,
) -> Result<Vec<Payment>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "select provider, payment_id, state, paid, currency, refunded, refunded_whole, disputed
         from onehold.payments
         where shop_id = $1 and order_id = $2
         order by heard_at, provider, payment_id
         limit $3",
        order.shop_id,
        order.id,
        limit
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Row::show).collect()
}

/// What an event adds to what is known of its payment.
#[derive(Default)]
pub(super) struct Heard<'a> {
    pub(super) paid: Option<i64>,
    pub(super) currency: Option<&'a str>,
    pub(super) refunded: i64,
    pub(super) refunded_whole: bool,
    pub(super) disputed: bool,
}

pub(super) async fn hear(
    conn: &mut PgConnection,
    order: &LockedOrder,
    (provider, id): (&str, &str),
    heard: &Heard<'_>,
) -> Result<(), sqlx::Error> {
    // Sums are set, never added, and only grow: whichever of two events comes first, the larger stays. A sum in
    // another currency takes the place of the one before.
    sqlx::query!(
        r#"insert into onehold.payments as p
               (shop_id, order_id, provider, payment_id, paid, currency, refunded, refunded_whole, disputed)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
           on conflict (shop_id, order_id, provider, payment_id) do update
           set paid = case when excluded.currency is null or excluded.currency is not distinct from p.currency
                           then greatest(p.paid, excluded.paid) else excluded.paid end,
               currency = coalesce(excluded.currency, p.currency),
               refunded = greatest(p.refunded, excluded.refunded),
               refunded_whole = p.refunded_whole or excluded.refunded_whole,
               disputed = p.disputed or excluded.disputed"#,
        order.shop_id,
        order.id,
        provider,
        id,
        heard.paid,
        heard.currency,
        heard.refunded,
        heard.refunded_whole,
        heard.disputed
    )
    .execute(conn)
    .await
    .map(|_| ())
}

pub(super) async fn turn(
    conn: &mut PgConnection,
    order: &LockedOrder,
    payment: &Payment,
    to: PaymentState,
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "update onehold.payments set state = $5
         where shop_id = $1 and order_id = $2 and provider = $3 and payment_id = $4",
        order.shop_id,
        order.id,
        payment.provider,
        payment.id,
        to.code()
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

/// What a payment says of itself in the history.
pub(super) fn facts(payment: &Payment) -> Value {
    serde_json::json!({
        "payment_id": (!payment.id.is_empty()).then_some(&payment.id),
        "amount": payment.paid, "currency": payment.currency, "refunded": payment.refunded,
    })
}

impl StoredEvent {
    /// The payment's id, or the empty one that stands for all that is said without.
    pub(super) fn payment(&self) -> &str {
        self.payment_id.as_deref().unwrap_or_default()
    }
}
