//! What a handler gets and gives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::catalogue::NEWEST_VERSION;
use crate::db::Fault;

/// One execution of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The job's id, an ULID in text; the same at every attempt.
    pub id: String,
    /// The name of its queue.
    pub queue: &'static str,
    /// Which attempt this is, counted from 1.
    pub attempt: u16,
    /// After how many attempts a failing job is a dead letter.
    pub max_attempts: u16,
    /// What was enqueued: JSON in UTF-8, unless somebody else wrote it.
    pub payload: Vec<u8>,
}

impl fmt::Debug for Delivery {
    // Without the payload: it may hold a buyer's data, and this is what logs print.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} of {} (attempt {} of {})", self.id, self.queue, self.attempt, self.max_attempts)
    }
}

/// Why a job did not end well.
#[derive(Debug)]
pub enum JobError {
    /// Try again after the usual backoff, while attempts are left.
    Retry(anyhow::Error),
    /// Try again after this time, while attempts are left.
    RetryAfter(Duration, anyhow::Error),
    /// Trying again cannot help: a dead letter at once.
    Dead(anyhow::Error),
}

impl From<anyhow::Error> for JobError {
    fn from(error: anyhow::Error) -> Self {
        Self::Retry(error)
    }
}

impl From<Fault> for JobError {
    fn from(fault: Fault) -> Self {
        Self::Retry(fault.into())
    }
}

impl From<sqlx::Error> for JobError {
    fn from(error: sqlx::Error) -> Self {
        Self::Retry(error.into())
    }
}

/// Runs one delivery. A panic counts as a failed attempt. Called again for the same job after a failure, a
/// crash or a lost acknowledgement, at worst while the first call still runs in another process.
pub type Handler = Arc<dyn Fn(Delivery) -> BoxFuture<'static, Result<(), JobError>> + Send + Sync>;

/// Reads a delivery's payload.
///
/// # Errors
/// [`JobError::Dead`] for a payload that does not fit, with what and where. [`JobError::Retry`] for a newer
/// version than this release knows: a worker of the newer release can read it.
pub fn decode<T: DeserializeOwned>(delivery: &Delivery) -> Result<T, JobError> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u16,
    }
    let unreadable = |e| JobError::Dead(anyhow::Error::new(e).context(format!("unreadable payload in {delivery:?}")));
    let Versioned { v } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
    if v > NEWEST_VERSION {
        let newer = anyhow!("version {v} is newer than this release, which reads up to {NEWEST_VERSION}");
        return Err(JobError::Retry(newer));
    }
    serde_json::from_slice(&delivery.payload).map_err(unreadable)
}
