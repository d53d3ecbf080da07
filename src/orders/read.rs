//! Reading orders, in the shapes of the contract.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

use super::{PaymentState, Status, sql};
use crate::db::{Batcher, Db, Fault, LOCK_TIMEOUT};

/// An order as the contract shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Order {
    /// Its id.
    pub id: Uuid,
    /// The web app's name for it.
    pub reference: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// Whether it waits for stock to come free: only ever while it is placed.
    pub waiting: bool,
    /// When it was placed.
    pub placed_at: DateTime<Utc>,
    /// When its hold lapses; null when nothing is held.
    pub hold_expires_at: Option<DateTime<Utc>>,
    /// Its lines with their reservations, oldest acquisition first.
    pub lines: Vec<Line>,
    /// Why it was refused.
    pub refusal: Option<Value>,
    /// Its money.
    pub payment: Payment,
    /// Who buys.
    pub buyer: Option<String>,
    /// What the web app wrote on it.
    pub metadata: Value,
}

/// A line of an order.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its number, from 1.
    pub line: i16,
    /// What it asks for, of an asset line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asset: Option<Value>,
    /// What it asks for, of a stock line.
    #[serde(flatten)]
    pub stock: Option<StockLine>,
    /// How many.
    pub quantity: i32,
    /// What was reserved for it, ended reservations included.
    pub reservations: Vec<Reservation>,
}

/// What a stock line asks for.
#[derive(Clone, Debug, Serialize)]
pub struct StockLine {
    /// The SKU.
    pub sku: String,
    /// Where it may come from, most preferred first; null: anywhere.
    pub locations: Option<Vec<String>>,
    /// Whether several locations may fill it together.
    pub split: bool,
}

/// A reservation as the contract shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Reservation {
    /// Its id.
    pub id: Uuid,
    /// held, converted, expired or cancelled.
    pub state: String,
    /// The asset's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asset: Option<String>,
    /// The SKU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Where it stands.
    pub location: String,
    /// How many.
    pub quantity: i32,
    /// The deadline.
    pub expires_at: DateTime<Utc>,
    /// Why this one, as it was decided.
    pub reason: Value,
}

/// An order's money.
#[derive(Clone, Debug, Serialize)]
pub struct Payment {
    /// Where it stands.
    pub state: PaymentState,
    /// What is expected, in the currency's minor unit.
    pub amount: Option<i64>,
    /// The currency, ISO 4217.
    pub currency: Option<String>,
}

/// One event of an order's history.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// When it happened.
    pub at: DateTime<Utc>,
    /// What happened.
    pub kind: String,
    /// By whom: worker, sweep, `api:KEYNAME`, `payment:PROVIDER` or sql.
    pub actor: String,
    /// The particulars.
    pub detail: Value,
}

/// Which orders to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only with this reference.
    pub reference: Option<String>,
    /// Only in this status.
    pub status: Option<Status>,
    /// Only older than this one.
    pub before: Option<Uuid>,
    /// At most so many.
    pub limit: i64,
}

/// The order, or `None` where the shop has no such order.
///
/// # Errors
/// Faults of the database only.
pub async fn read(db: &Db, shop_id: i32, id: Uuid) -> Result<Option<Order>, Fault> {
    Ok(assemble(db.pool(), shop_id, sql::headers(db.pool(), shop_id, &[id]).await?).await?.pop())
}

/// Reads orders that are asked for at the same moment together. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reading {
    db: Db,
    batcher: Batcher<Uuid, Order>,
}

impl Reading {
    /// Begins to take questions in; ends when the last clone is dropped. Must be called on a Tokio runtime.
    #[must_use]
    pub fn start(db: &Db) -> Self {
        let work = Arc::new(|lanes: PgPool, shop_id, ids: Vec<Uuid>| {
            let batch: BoxFuture<'static, _> = Box::pin(async move {
                let orders = assemble(&lanes, shop_id, sql::headers(&lanes, shop_id, &ids).await?).await?;
                let of = |id: &Uuid| orders.iter().find(|order| order.id == *id).cloned();
                Ok(ids.iter().map(of).collect())
            });
            batch
        });
        Self { db: db.clone(), batcher: Batcher::start(db, "read", LOCK_TIMEOUT, work) }
    }

    /// As [`read`], and in company where there is any.
    ///
    /// # Errors
    /// Faults of the database only.
    pub async fn read(&self, shop_id: i32, id: Uuid) -> Result<Option<Order>, Fault> {
        match self.batcher.ask(shop_id, id).await {
            Some(order) => Ok(Some(order)),
            None => read(&self.db, shop_id, id).await,
        }
    }
}

/// The shop's orders that pass the filter, newest first.
///
/// # Errors
/// Faults of the database only.
pub async fn list(db: &Db, shop_id: i32, filter: &Filter) -> Result<Vec<Order>, Fault> {
    let ids = sql::list(db.pool(), shop_id, filter).await?;
    let mut orders = assemble(db.pool(), shop_id, sql::headers(db.pool(), shop_id, &ids).await?).await?;
    orders.sort_by_key(|o| std::cmp::Reverse(o.id));
    Ok(orders)
}

/// The order's history, oldest first, or `None` where the shop has no such order.
///
/// # Errors
/// Faults of the database only.
pub async fn events(db: &Db, shop_id: i32, id: Uuid) -> Result<Option<Vec<Event>>, Fault> {
    if !sql::exists(db.pool(), shop_id, id).await? {
        return Ok(None);
    }
    Ok(Some(sql::events(db.pool(), shop_id, id).await?))
}

async fn assemble(pool: &PgPool, shop_id: i32, headers: Vec<sql::Header>) -> Result<Vec<Order>, Fault> {
    let ids: Vec<Uuid> = headers.iter().map(|h| h.id).collect();
    let lines = sql::lines(pool, shop_id, &ids).await?;
    let reservations = sql::reservations(pool, shop_id, &ids).await?;
    let mut orders = Vec::with_capacity(headers.len());
    for header in headers {
        let mut order = header.into_order()?;
        for line in lines.iter().filter(|l| l.order_id == order.id) {
            let mine = |r: &&sql::ReservationRow| r.order_id == order.id && r.line == line.line;
            order.lines.push(Line {
                line: line.line,
                asset: line.asset.clone(),
                stock: line.sku.clone().map(|sku| StockLine {
                    sku,
                    locations: line.locations.clone(),
                    split: line.split,
                }),
                quantity: line.quantity,
                reservations: reservations.iter().filter(mine).map(sql::ReservationRow::show).collect(),
            });
        }
        orders.push(order);
    }
    Ok(orders)
}
