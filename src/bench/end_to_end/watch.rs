//! Sees orders become sold: one look for all who wait, so that waiting does not load the fleet that is measured.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::sql;
use crate::db::Db;

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks for as long as there is a clone of it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Watch {
    known: Arc<Mutex<Known>>,
    _looking: Arc<AbortOnDropHandle<()>>,
}

#[derive(Default)]
struct Known {
    placed: Vec<Uuid>,
    waiting: HashMap<Uuid, oneshot::Sender<()>>,
}

impl Watch {
    pub(super) fn start(db: &Db, shop_id: i32) -> Self {
        let known = Arc::<Mutex<Known>>::default();
        let looking = tokio::spawn(look(db.clone(), shop_id, Arc::clone(&known)));
        Self { known, _looking: Arc::new(AbortOnDropHandle::new(looking)) }
    }

    /// Comes back when the order is sold; an error where nobody looks any more.
    pub(super) fn until_sold(&self, order: Uuid) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let mut known = locked(&self.known);
        known.placed.push(order);
        known.waiting.insert(order, tell);
        told
    }

    /// Every order that was waited for.
    pub(super) fn placed(&self) -> Vec<Uuid> {
        locked(&self.known).placed.clone()
    }
}

fn locked(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn look(db: Db, shop_id: i32, known: Arc<Mutex<Known>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let waiting: Vec<Uuid> = locked(&known).waiting.keys().copied().collect();
        if waiting.is_empty() {
            continue;
        }
        match sql::sold_among(db.pool(), shop_id, &waiting).await {
            Ok(sold) => {
                let mut known = locked(&known);
                for tell in sold.iter().filter_map(|order| known.waiting.remove(order)) {
                    // Who has given up is not told.
                    let _ = tell.send(());
                }
            }
            Err(error) => tracing::warn!(%error, "the bench cannot see what is sold; looking again"),
        }
    }
}
