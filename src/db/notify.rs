//! Waking others through the database: sending notifications after a commit, many in one statement, and
//! hearing them. A notification is a hint: whoever waits for one also looks by himself now and then.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::{broadcast, mpsc};
use uuid::Uuid;

use super::{Db, sql};

const JOBS: &str = "onehold_jobs";
const ORDERS: &str = "onehold_orders";
/// The most notices that wait to be sent; more are dropped, which costs their hearers a poll.
const MOST_WAITING: usize = 10_000;
const MOST_PER_STATEMENT: usize = 500;
/// A payload may be 8,000 bytes; an id takes 36.
const MOST_PER_PAYLOAD: usize = 200;
const BETWEEN: &str = " ";
/// How many heard notices a slow subscriber may lag behind before it is told to look for itself.
const MOST_UNREAD: usize = 4_096;
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Something that others may be waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A queue has a new job.
    Job(String),
    /// An order has left `placed`.
    Decided(Uuid),
    /// Notices may have been lost: look for yourself.
    Missed,
}

/// Sends notices after a commit. Not inside the transaction, because a commit that notifies holds one
/// lock for the whole server while it waits for its fsync.
#[derive(Clone, Debug)]
pub struct Notifier {
    outbox: mpsc::Sender<Notice>,
}

impl Notifier {
    pub(super) fn start(pool: PgPool) -> Self {
        let (outbox, mut inbox) = mpsc::channel(MOST_WAITING);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while inbox.recv_many(&mut batch, MOST_PER_STATEMENT).await > 0 {
                let (channels, payloads): (Vec<_>, Vec<_>) = messages(batch.drain(..)).into_iter().unzip();
                if let Err(error) = sql::notify(&pool, &channels, &payloads).await {
                    tracing::debug!(%error, "notices were lost; their hearers will poll");
                }
            }
        });
        Self { outbox }
    }

    /// Says that `queue` has a new job. Never waits.
    pub fn job(&self, queue: &str) {
        let _ = self.outbox.try_send(Notice::Job(queue.to_owned()));
    }

    /// Says that an order has left `placed`. Never waits.
    pub fn decided(&self, order: Uuid) {
        let _ = self.outbox.try_send(Notice::Decided(order));
    }
}

/// The notices as (channel, payload), none twice; many orders in one, as each notification is a row that every
/// listener is sent.
fn messages(notices: impl Iterator<Item = Notice>) -> Vec<(&'static str, String)> {
    let (mut jobs, mut orders) = (BTreeSet::new(), BTreeSet::new());
    for notice in notices {
        match notice {
            Notice::Job(queue) => {
                jobs.insert(queue);
            }
            Notice::Decided(order) => {
                orders.insert(order.to_string());
            }
            Notice::Missed => {}
        }
    }
    let orders: Vec<String> = orders.into_iter().collect();
    let orders = orders.chunks(MOST_PER_PAYLOAD).map(|some| (ORDERS, some.join(BETWEEN)));
    jobs.into_iter().map(|queue| (JOBS, queue)).chain(orders).collect()
}

/// What a notification says; in a release that is not ours it may say what is not understood.
fn notices(channel: &str, payload: &str) -> Vec<Notice> {
    if channel == JOBS {
        return vec![Notice::Job(payload.to_owned())];
    }
    payload.split(BETWEEN).map(|id| id.parse().map_or(Notice::Missed, Notice::Decided)).collect()
}

/// Hears the notices of the whole installation on one connection, and hands them to any number of
/// subscribers in this process. Needs a session of its own: not behind a transaction-pooling proxy.
#[derive(Clone, Debug)]
pub struct Notices {
    heard: broadcast::Sender<Notice>,
}

impl Notices {
    /// Begins to listen; reconnects by itself for as long as a subscriber or handle lives.
    #[must_use]
    pub fn start(db: &Db) -> Self {
        let (heard, _) = broadcast::channel(MOST_UNREAD);
        let ear = heard.clone();
        // A pool of one of its own: a listener keeps its connection for ever.
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(db.options().clone());
        tokio::spawn(async move {
            while let Err(error) = hear(&pool, &ear).await {
                tracing::debug!(%error, "listener lost its connection");
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        });
        Self { heard }
    }

    /// Every notice from now on. A receiver that lags gets `RecvError::Lagged`, which means
    /// [`Notice::Missed`].
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Notice> {
        self.heard.subscribe()
    }
}

async fn hear(pool: &PgPool, ear: &broadcast::Sender<Notice>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all([JOBS, ORDERS]).await?;
    // What was sent while nobody listened is gone.
    let _ = ear.send(Notice::Missed);
    loop {
        let heard = match listener.try_recv().await? {
            Some(n) => notices(n.channel(), n.payload()),
            None => vec![Notice::Missed],
        };
        for notice in heard {
            let _ = ear.send(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_orders_travel_in_one_notification_and_are_heard_each() {
        let orders: Vec<Uuid> = (1..=450).map(Uuid::from_u128).collect();
        let told = orders.iter().chain(&orders).map(|id| Notice::Decided(*id));
        let sent = messages(told.chain([Notice::Job("reserve".to_owned()), Notice::Job("reserve".to_owned())]));
        assert_eq!(sent.len(), 1 + 3);
        assert!(sent.iter().all(|(_, payload)| payload.len() < 8_000));
        let heard: Vec<Notice> = sent.iter().flat_map(|(channel, payload)| notices(channel, payload)).collect();
        let expected = orders.into_iter().map(Notice::Decided);
        assert_eq!(heard, [Notice::Job("reserve".to_owned())].into_iter().chain(expected).collect::<Vec<_>>());
        assert_eq!(notices(ORDERS, "what is this"), vec![Notice::Missed; 3]);
    }
}
