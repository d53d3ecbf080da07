//! Waiting for an order to be decided: woken by the database's notice, and looking now and then all the
//! same, as a notice is a hint and can be lost.

use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::AppState;
use super::problem::Problem;
use crate::db::Notice;
use crate::orders::{Order, Status};

/// How long a lost notice goes unseen.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The order as it stands when it has left `placed`, or when `wait` is over or the process is to end.
/// `notices` were subscribed to before the order was placed, so that none is missed; a `new` order is not even looked
/// at before the first one. No connection to the database is kept meanwhile.
pub(super) async fn until_decided(
    state: &AppState,
    shop_id: i32,
    id: Uuid,
    wait: Duration,
    new: bool,
    mut notices: Receiver<Notice>,
) -> Result<Order, Problem> {
    let deadline = Instant::now() + wait;
    let mut worth_a_look = !new;
    loop {
        let over = Instant::now() >= deadline || state.shutdown.is_cancelled();
        if worth_a_look || over {
            let order = order(state, shop_id, id).await?;
            if order.status != Status::Placed || over {
                return Ok(order);
            }
        }
        worth_a_look = true;
        let look = deadline.min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            // Time out or not: the next look tells.
            _ = timeout_at(look, heard(&mut notices, id)) => {}
            () = state.shutdown.cancelled() => {}
        }
    }
}

/// The order that a handler has just dealt with.
pub(super) async fn order(state: &AppState, shop_id: i32, id: Uuid) -> Result<Order, Problem> {
    state.reading.read(shop_id, id).await?.ok_or_else(Problem::not_found)
}

/// Ends when there is a reason to look at the order.
async fn heard(notices: &mut Receiver<Notice>, id: Uuid) {
    loop {
        match notices.recv().await {
            Ok(Notice::Decided(decided)) if decided == id => return,
            Ok(Notice::Decided(_) | Notice::Job(_)) => {}
            Ok(Notice::Missed) | Err(RecvError::Lagged(_)) => return,
            // Nobody listens any more: looking is all that is left.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
