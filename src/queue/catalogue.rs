//! The catalogue: every queue and every job's wire format. Names and payloads outlive a release, so they
//! are frozen by a test; a payload that changes gets a new version, and the old one is still read.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A queue's name in `apalis.jobs.job_type`, and how its jobs are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The frozen name.
    pub name: &'static str,
    /// After this many executions a failing job is a dead letter.
    pub max_attempts: u16,
    /// How many of its jobs one worker process runs at once, unless told otherwise.
    pub concurrency: u16,
}

/// Orders that wait for their reservation.
pub const RESERVE: Queue = Queue { name: "reserve", max_attempts: 20, concurrency: 64 };
/// Payment events that wait to be applied.
pub const CONVERT: Queue = Queue { name: "convert", max_attempts: 20, concurrency: 16 };
/// The minutely work: sweep, re-enqueue, roll up, prune.
pub const HOUSEKEEPING: Queue = Queue { name: "housekeeping", max_attempts: 5, concurrency: 2 };

/// Pools of unit rows that have fallen low and wait to be refilled. Ahead of buyers, so few at a time suffice; one
/// that is refilled for nothing costs a count.
pub const REFILL: Queue = Queue { name: "refill", max_attempts: 5, concurrency: 4 };

/// Every queue there is.
pub const ALL: [Queue; 4] = [RESERVE, CONVERT, HOUSEKEEPING, REFILL];

/// The newest version `v` of a payload that this release reads. During a deployment a worker of the previous
/// release can meet a newer one, and leaves it to a worker that knows it.
pub const NEWEST_VERSION: u16 = 1;

/// A payload, and the queue it belongs to.
pub trait Job: Serialize + Sync {
    /// Where jobs with this payload wait.
    const QUEUE: Queue;
}

impl Job for ReserveOrder {
    const QUEUE: Queue = RESERVE;
}

impl Job for ApplyPayment {
    const QUEUE: Queue = CONVERT;
}

impl Job for Housekeeping {
    const QUEUE: Queue = HOUSEKEEPING;
}

impl Job for RefillPool {
    const QUEUE: Queue = REFILL;
}

/// Reserve an order. Wire format: `{"v":1,"shop":1,"order":"…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveOrder {
    /// The version of this format: 1.
    pub v: u16,
    /// The shop's id.
    pub shop: i32,
    /// The order's id.
    pub order: Uuid,
}

/// Apply a payment event. Wire format: `{"v":1,"shop":1,"provider":"stripe","event":"…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyPayment {
    /// The version of this format: 1.
    pub v: u16,
    /// The shop's id.
    pub shop: i32,
    /// `stripe` or `standard`.
    pub provider: String,
    /// The provider's id of the event.
    pub event: String,
}

/// Refill a pool. Wire format: `{"v":1,"shop":1,"sku":"…","location":"…"}`. Written by
/// `onehold.enqueue_refill`, under a key that names the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefillPool {
    /// The version of this format: 1.
    pub v: u16,
    /// The shop's id.
    pub shop: i32,
    /// Of what.
    pub sku: String,
    /// Where.
    pub location: String,
}

/// One piece of housekeeping. Wire format: `{"v":1,"task":"sweep"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Housekeeping {
    /// The version of this format: 1.
    pub v: u16,
    /// What to do.
    pub task: Task,
}

/// The pieces of housekeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Lapsed holds become expired.
    Sweep,
    /// Orders, payments and low pools without a job get one.
    Requeue,
    /// What the ledger was given since is added to the levels.
    RollUp,
    /// Finished jobs and gone workers are removed.
    Prune,
}

impl Task {
    /// Every piece there is, in the order of use.
    pub const ALL: [Self; 4] = [Self::Sweep, Self::Requeue, Self::RollUp, Self::Prune];

    /// The frozen name: in the payload and in front of a tick's key.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Requeue => "requeue",
            Self::RollUp => "roll_up",
            Self::Prune => "prune",
        }
    }
}
