//! Waking others through the database: sending notifications after a commit, many in one statement, and
//! hearing them. A notification is a hint: whoever waits for one also looks by himself now and then.

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
                let mut pairs: Vec<(&str, String)> = batch.drain(..).filter_map(pair).collect();
                pairs.sort_unstable();
                pairs.dedup();
                let (channels, payloads): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
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

fn pair(notice: Notice) -> Option<(&'static str, String)> {
    match notice {
        Notice::Job(queue) => Some((JOBS, queue)),
        Notice::Decided(order) => Some((ORDERS, order.to_string())),
        Notice::Missed => None,
    }
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
        let notice = match listener.try_recv().await? {
            Some(n) if n.channel() == JOBS => Notice::Job(n.payload().to_owned()),
            Some(n) => n.payload().parse().map_or(Notice::Missed, Notice::Decided),
            None => Notice::Missed,
        };
        let _ = ear.send(notice);
    }
}
