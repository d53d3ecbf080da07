//! Placing: the order and its reserve job exist both or not at all.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use uuid::Uuid;

use super::sql;
use crate::db::{Batcher, Db, Fault};
use crate::queue::catalogue::{CONVERT, RESERVE};

/// How long a batch waits for a key that another transaction is storing, before it is split: all of it waits.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// What became of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The order is new.
    New(Uuid),
    /// The same key with the same body: this order was placed before.
    Replayed(Uuid),
    /// The key belongs to an order with another body.
    KeyReused,
}

/// Stores an order once per key, with its reserve job, in one transaction. `body` is the request as sent
/// (compared as a JSON value on a replay), `lines` its checked and normalised lines, `actor` who asks
/// (`api:KEYNAME`).
///
/// Safe to repeat: the key makes it once.
///
/// # Errors
/// Faults of the database only.
pub async fn place(
    db: &Db,
    shop_id: i32,
    key: &str,
    body: &Value,
    lines: &Value,
    actor: &str,
) -> Result<Placed, Fault> {
    // One statement, and so a transaction that costs no round trips of its own. It waits for nobody but a
    // placement under the same key, so there is no deadlock to retry.
    let stored = sql::store(db.pool(), shop_id, key, body, lines, actor).await?;
    Ok(placed(db, &stored.outcome, stored.order_id))
}

fn placed(db: &Db, outcome: &str, id: Uuid) -> Placed {
    match outcome {
        "placed" => {
            db.notifier().job(RESERVE.name);
            // Money may have come before the order.
            db.notifier().job(CONVERT.name);
            Placed::New(id)
        }
        "replayed" => Placed::Replayed(id),
        _ => Placed::KeyReused,
    }
}

/// Places orders that come at the same moment in one commit. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Placing {
    db: Db,
    batcher: Batcher<sql::Placement, (String, Uuid)>,
}

impl Placing {
    /// Begins to take orders in; ends when the last clone is dropped. Must be called on a Tokio runtime.
    #[must_use]
    pub fn start(db: &Db) -> Self {
        let work = Arc::new(|lanes, shop_id, placements: Vec<sql::Placement>| {
            let batch: BoxFuture<'static, _> = Box::pin(async move {
                let mut answers: Vec<_> = placements.iter().map(|_| None).collect();
                for stored in sql::store_together(&lanes, shop_id, placements).await? {
                    let at = usize::try_from(stored.n - 1).ok().and_then(|at| answers.get_mut(at));
                    if let Some(answer) = at {
                        *answer = Some((stored.outcome, stored.order_id));
                    }
                }
                Ok(answers)
            });
            batch
        });
        Self { db: db.clone(), batcher: Batcher::start(db, "place", LOCK_TIMEOUT, work) }
    }

    /// As [`place`], and in company where there is any.
    ///
    /// Safe to repeat, as [`place`] is.
    ///
    /// # Errors
    /// Faults of the database only.
    pub async fn place(
        &self,
        shop_id: i32,
        key: &str,
        body: &Value,
        lines: &Value,
        actor: &str,
    ) -> Result<Placed, Fault> {
        let placement =
            sql::Placement { key: key.to_owned(), body: body.clone(), lines: lines.clone(), actor: actor.to_owned() };
        match self.batcher.ask(shop_id, placement).await {
            Some((outcome, id)) => Ok(placed(&self.db, &outcome, id)),
            None => place(&self.db, shop_id, key, body, lines, actor).await,
        }
    }
}
