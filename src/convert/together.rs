//! Payments that come at the same moment, applied in one commit: those that pay their orders in full, as their first
//! money. Every other one goes the careful way, by the same rules.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Applied, apply, sql};
use crate::db::{Batcher, Db, Fault, LOCK_TIMEOUT};

/// The event's provider, and the provider's id of it.
type Event = (String, String);

/// Takes payment events in and applies what has gathered. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Converter {
    db: Db,
    batcher: Batcher<Event, ()>,
}

impl Converter {
    /// Begins to combine; ends when the last clone is dropped. Must be called on a Tokio runtime.
    #[must_use]
    pub fn start(db: &Db) -> Self {
        let work = Arc::new(|lanes, shop_id, events: Vec<Event>| {
            let batch: BoxFuture<'static, _> = Box::pin(async move {
                let count = events.len();
                let converted = sql::convert_together(&lanes, shop_id, events).await?;
                let at = |n: usize| i32::try_from(n).is_ok_and(|n| converted.contains(&n)).then_some(());
                Ok((1..=count).map(at).collect())
            });
            batch
        });
        Self { db: db.clone(), batcher: Batcher::start(db, "convert", LOCK_TIMEOUT, work) }
    }

    /// Applies a stored payment event: as [`apply`], and in company where there is any.
    ///
    /// Safe to repeat, as [`apply`] is.
    ///
    /// # Errors
    /// Faults of the database only.
    pub async fn apply(&self, shop_id: i32, provider: &str, event_id: &str) -> Result<Applied, Fault> {
        match self.batcher.ask(shop_id, (provider.to_owned(), event_id.to_owned())).await {
            Some(()) => Ok(Applied::Converted),
            None => apply(&self.db, shop_id, provider, event_id).await,
        }
    }
}
