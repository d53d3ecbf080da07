//! The courier: tells shops outside what was decided. What is to be told is written by the database in the deciding
//! transaction (`onehold.tell_outside`); here it is taken under a lease, sent, and what came of it written down.
//! A courier that dies loses its leases, and another sends again: at least once, in order per order.

mod address;
pub mod endpoints;
mod schedule;
mod send;
mod sql;

pub use send::LIMIT;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use self::send::{Answer, Sender, To};
use self::sql::{Due, Ended, Taken};
use crate::db::Db;
use crate::traces;

/// How often is looked for what is due. A look costs one index probe per endpoint.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a delivery stays with the courier that took it: an attempt's limit, and time to write down what came of it.
const LEASE: Duration = Duration::from_secs(45);
/// How many endpoints are served at once, each by itself; those beyond wait for the next look, in random order.
const MOST_ENDPOINTS: usize = 256;
/// How many endpoints one look gives: more than are served at once, as some of them are being served already.
const MOST_DUE: i64 = 1_024;
/// How many deliveries an endpoint gets at once, each of another order.
const AT_ONCE: i32 = 16;
/// How many pending deliveries of a disabled endpoint are given up in one statement.
const GIVE_UP: i64 = 1_000;

/// An endpoint: its shop and its id.
type Key = (i32, Uuid);

/// Starts a courier, which delivers until `shutdown`; then takes nothing more, and gives what is on its way until `grace` is over. What is cut
/// off then is sent again by another courier when its lease has run out.
///
/// # Errors
/// A way out that cannot be made (no TLS roots). Nothing else: a database that is away costs time.
pub fn start(db: Db, shutdown: CancellationToken, grace: Duration) -> anyhow::Result<JoinHandle<()>> {
    let sender = Sender::new()?;
    Ok(tokio::spawn(run(db, sender, shutdown, grace)))
}

async fn run(db: Db, sender: Sender, shutdown: CancellationToken, grace: Duration) {
    let mut serving: JoinSet<Key> = JoinSet::new();
    let mut served: HashSet<Key> = HashSet::new();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(ended) = serving.join_next() => {
                match ended {
                    Ok(key) => drop(served.remove(&key)),
                    Err(error) => {
                        // Which one is not known. The others are met again too: leases keep them apart.
                        tracing::error!(%error, "an endpoint's courier broke off");
                        served.clear();
                    }
                }
            }
            _ = looks.tick() => match sql::due(db.pool(), MOST_DUE).await {
                Ok(due) => {
                    for endpoint in due {
                        let key = (endpoint.shop_id, endpoint.id);
                        if serving.len() < MOST_ENDPOINTS && served.insert(key) {
                            let (db, sender, shutdown) = (db.clone(), sender.clone(), shutdown.clone());
                            serving.spawn(async move {
                                serve(&db, &sender, &endpoint, &shutdown).await;
                                key
                            });
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "the courier cannot ask what is due; looking again"),
            },
        }
    }
    let ending = async { while serving.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, ending).await.is_err() {
        tracing::warn!("some deliveries were cut off; they are sent again");
    }
}

/// Delivers what is due at one endpoint, until nothing is.
async fn serve(db: &Db, sender: &Sender, endpoint: &Due, shutdown: &CancellationToken) {
    if let Err(error) = deliver_all(db, sender, endpoint, shutdown).await {
        tracing::warn!(endpoint = %endpoint.id, %error, "deliveries are put off");
    }
}

async fn deliver_all(
    db: &Db,
    sender: &Sender,
    endpoint: &Due,
    shutdown: &CancellationToken,
) -> Result<(), sqlx::Error> {
    let (shop_id, id) = (endpoint.shop_id, endpoint.id);
    while !shutdown.is_cancelled() {
        if endpoint.disabled {
            if sql::give_up(db.pool(), shop_id, id, GIVE_UP).await? == 0 {
                break;
            }
            continue;
        }
        let taken = sql::take(db.pool(), shop_id, id, AT_ONCE, LEASE.as_secs_f64()).await?;
        if taken.is_empty() {
            break;
        }
        for ended in join_all(taken.iter().map(|taken| deliver(db, sender, endpoint, taken))).await {
            ended?;
        }
    }
    Ok(())
}

/// One attempt, and what came of it.
async fn deliver(db: &Db, sender: &Sender, endpoint: &Due, taken: &Taken) -> Result<(), sqlx::Error> {
    let to = To { url: &endpoint.url, secret: &endpoint.secret, allow_private: endpoint.allow_private };
    let began = Instant::now();
    let follows = traces::of_outbound(db.pool(), endpoint.shop_id, taken.event_id).await;
    let span = traces::delivering(&taken.kind, taken.event_id, taken.attempt, follows.as_deref());
    let trace = traces::carried(&span);
    let event = taken.event_id.to_string();
    let sending = sender.send(&to, &event, taken.body.clone(), trace.as_deref());
    let answer = sending.instrument(span.clone()).await;
    if !matches!(answer, Answer::Accepted(_)) {
        traces::failed(&span);
    }
    let took_ms = i32::try_from(began.elapsed().as_millis()).unwrap_or(i32::MAX);
    let (shop_id, id) = (endpoint.shop_id, endpoint.id);
    if let Answer::Gone(_) = answer
        && sql::disable(db.pool(), shop_id, id, "it answered 410 Gone").await? > 0
    {
        tracing::warn!(endpoint = %id, url = endpoint.url, "disabled: it answered 410 Gone");
    }
    let ended = ended(&answer, taken.attempt, took_ms);
    if ended.state == "given_up" {
        tracing::warn!(endpoint = %id, event = %taken.event_id, kind = taken.kind, error = ended.error, "given up");
    }
    if !sql::end_attempt(db.pool(), shop_id, id, taken, &ended).await? {
        tracing::info!(endpoint = %id, event = %taken.event_id, "another courier has taken it over meanwhile");
    }
    Ok(())
}

/// How the `attempt`-th attempt ended.
fn ended(answer: &Answer, attempt: i32, took_ms: i32) -> Ended<'_> {
    let done = |state, status, error| Ended { state, delay_seconds: 0.0, status, error, took_ms };
    match answer {
        Answer::Accepted(status) => done("delivered", Some(i32::from(*status)), None),
        Answer::Gone(error) => done("given_up", Some(410), Some(error.as_str())),
        Answer::Refused { status, error, asked } => {
            let status = status.map(i32::from);
            match schedule::pause(attempt, *asked) {
                Some(pause) => {
                    Ended { delay_seconds: pause.as_secs_f64(), ..done("pending", status, Some(error.as_str())) }
                }
                None => done("given_up", status, Some(error.as_str())),
            }
        }
    }
}
