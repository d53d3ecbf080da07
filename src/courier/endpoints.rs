//! Where a shop wants to be told, what was told there, and telling it again.

use chrono::{DateTime, Utc};
use rand::Rng as _;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::send::{self, INSIDE};
use super::{address, sql};
use crate::db::{Db, Fault};

/// The most characters of an endpoint's URL.
pub const MOST_URL_CHARS: usize = 2_000;
/// How many events one call may deliver again. More is another call, from where the answer says.
pub const MOST_REPLAYED: i64 = 10_000;
/// Events per statement of a replay.
const BATCH: i32 = 1_000;

/// An endpoint as it is listed: without its secret.
#[derive(Clone, Debug, Serialize)]
pub struct Endpoint {
    /// Its id.
    pub id: Uuid,
    /// Where it is.
    pub url: String,
    /// Whether it may be at a private, loopback or link-local address, and without TLS.
    pub allow_private: bool,
    /// When it was added.
    pub created_at: DateTime<Utc>,
    /// When it was disabled; none: it is live.
    pub disabled_at: Option<DateTime<Utc>>,
    /// Why it was disabled.
    pub disabled_because: Option<String>,
    /// How many deliveries it still is to get.
    pub pending: i64,
}

/// A delivery and its attempts.
#[derive(Clone, Debug, Serialize)]
pub struct Delivery {
    /// The event's id, which is the `webhook-id`.
    pub event: Uuid,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The order it is about; none for `stock.low`.
    pub order: Option<Uuid>,
    /// When it was decided.
    pub at: DateTime<Utc>,
    /// `pending`, `delivered` or `given_up`.
    pub state: String,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// When it is tried next; of one that is on its way, when it is taken for lost.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// `{"at", "status", "error", "took_ms"}`, oldest first.
    pub attempts: Value,
}

/// What became of a wish for an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub enum Added {
    /// It is live. The secret, which signs what is sent there, is shown this once.
    New {
        /// Its id.
        id: Uuid,
        /// `whsec_…`
        secret: String,
    },
    /// Why it cannot be used, as the end of a sentence that begins with the URL.
    Unusable(String),
}

impl std::fmt::Debug for Added {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::New { id, secret: _ } => write!(f, "New {{ id: {id}, … }}"),
            Self::Unusable(why) => write!(f, "Unusable({why:?})"),
        }
    }
}

/// What became of a wish to disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// Nothing more is sent there, but for what is on its way; what was pending is given up.
    Done,
    /// It was disabled before.
    Before,
    /// The shop has no such endpoint.
    NoSuchEndpoint,
}

/// Which events are to be delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// This one.
    One(Uuid),
    /// Those decided in a time.
    Within(Window),
}

/// A time in which events were decided: from `since` until before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From then on.
    pub since: DateTime<Utc>,
    /// Until before then.
    pub until: DateTime<Utc>,
}

/// What became of a wish to deliver again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// So many events are on their way, or were already.
    Done {
        /// How many.
        events: i64,
        /// Where there may be more than one call does: when the last of these was decided. The next call begins there.
        go_on_from: Option<DateTime<Utc>>,
    },
    /// The endpoint is disabled.
    Disabled,
    /// The shop has no such endpoint.
    NoSuchEndpoint,
    /// The shop has no such event.
    NoSuchEvent,
}

/// Adds an endpoint that is told of every decision from now on. Looks its name up, and refuses what leads inside.
///
/// # Errors
/// Faults of the database only.
pub async fn add(db: &Db, shop_id: i32, url: &str, allow_private: bool) -> Result<Added, Fault> {
    if let Err(why) = may_be_used(url, allow_private).await {
        return Ok(Added::Unusable(why));
    }
    // Hexadecimal digits in a multiple of four are base64 as well, which is how a secret is written.
    let secret = format!("whsec_{}", hex::encode(rand::rng().random::<[u8; 32]>()));
    let id = sql::add(db.pool(), shop_id, url, &secret, allow_private).await?;
    Ok(Added::New { id, secret })
}

async fn may_be_used(text: &str, allow_private: bool) -> Result<(), String> {
    if text.chars().count() > MOST_URL_CHARS || text.chars().any(char::is_control) {
        return Err(format!("must have at most {MOST_URL_CHARS} characters, and no control characters"));
    }
    let url = send::usable(text, allow_private)?;
    if allow_private {
        return Ok(());
    }
    let host = url.host_str().unwrap_or_default();
    let looked_up = tokio::time::timeout(send::LIMIT, address::look_up(host)).await;
    let found = looked_up.map_err(|_| "has a name that is not looked up in time".to_owned())?;
    let found = found.map_err(|error| format!("has a name that cannot be looked up: {error}"))?;
    if found.iter().all(|address| address::is_public(address.ip())) { Ok(()) } else { Err(INSIDE.to_owned()) }
}

/// Every endpoint of the shop, oldest first.
///
/// # Errors
/// Faults of the database only.
pub async fn list(db: &Db, shop_id: i32) -> Result<Vec<Endpoint>, Fault> {
    Ok(sql::list(db.pool(), shop_id).await?)
}

/// Disables an endpoint for ever; another one takes its place.
///
/// # Errors
/// Faults of the database only.
pub async fn disable(db: &Db, shop_id: i32, id: Uuid, because: &str) -> Result<Disabled, Fault> {
    if sql::disable(db.pool(), shop_id, id, because).await? > 0 {
        return Ok(Disabled::Done);
    }
    Ok(match sql::is_live(db.pool(), shop_id, id).await? {
        Some(_) => Disabled::Before,
        None => Disabled::NoSuchEndpoint,
    })
}

/// An endpoint's deliveries, newest first, `before` an event; all states, or one. None: no such endpoint.
///
/// # Errors
/// Faults of the database only.
pub async fn deliveries(
    db: &Db,
    shop_id: i32,
    endpoint: Uuid,
    state: Option<&str>,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Option<Vec<Delivery>>, Fault> {
    if sql::is_live(db.pool(), shop_id, endpoint).await?.is_none() {
        return Ok(None);
    }
    Ok(Some(sql::deliveries(db.pool(), shop_id, endpoint, state, before, limit).await?))
}

/// Delivers events again, with the ids that they have, from the first attempt on; also those that the endpoint was
/// never told. At most [`MOST_REPLAYED`] a call.
///
/// # Errors
/// Faults of the database only.
pub async fn replay(db: &Db, shop_id: i32, endpoint: Uuid, which: Which) -> Result<Replayed, Fault> {
    match sql::is_live(db.pool(), shop_id, endpoint).await? {
        None => return Ok(Replayed::NoSuchEndpoint),
        Some(false) => return Ok(Replayed::Disabled),
        Some(true) => {}
    }
    let window = match which {
        Which::One(event) => {
            let done = sql::replay_one(db.pool(), shop_id, endpoint, event).await?;
            let found = Replayed::Done { events: done, go_on_from: None };
            return Ok(if done == 0 { Replayed::NoSuchEvent } else { found });
        }
        Which::Within(window) => window,
    };
    let (mut events, mut since, mut after) = (0, window.since, Uuid::nil());
    while events < MOST_REPLAYED {
        let batch = sql::replay(db.pool(), shop_id, endpoint, since, after, window.until, BATCH).await?;
        events += batch.replayed;
        let (Some(at), Some(id)) = (batch.last_at, batch.last_id) else { break };
        if batch.replayed < i64::from(BATCH) {
            return Ok(Replayed::Done { events, go_on_from: None });
        }
        (since, after) = (at, id);
    }
    Ok(Replayed::Done { events, go_on_from: (events >= MOST_REPLAYED).then_some(since) })
}
