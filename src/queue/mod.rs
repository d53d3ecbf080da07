//! The queue: the catalogue of jobs, and the only adapter to apalis.
//!
//! apalis brings the tables, the worker runtime and the scheduler. The loop on the tables is Onehold's own:
//!
//! - `fetch` claims jobs when a notification or a short interval says so, never more than can start at once;
//! - `backend` hands them to apalis's worker, which runs them through `execute`;
//! - `ack` writes down how they ended, many in one statement, fenced by the claim;
//! - `heartbeat` says on a thread of its own that this process lives, and takes over the jobs of those that
//!   do not;
//! - `run` puts these together, and ends them in order.
//!
//! Delivery is at least once: a handler must be safe to repeat, even while it still runs elsewhere.

mod ack;
mod backend;
mod backoff;
pub mod catalogue;
mod delivery;
pub mod enqueue;
mod execute;
mod fetch;
mod heartbeat;
pub mod operate;
mod process;
mod prune;
mod run;
pub mod schedule;
mod settings;
mod sql;

pub use delivery::{Delivery, Handler, JobError, decode};
pub use prune::{Pruned, prune};
pub use run::run;
pub use settings::Settings;

use sqlx::migrate::Migrator;

/// apalis's own migrations, for its tables in the schema `apalis`.
#[must_use]
pub fn migrations() -> Migrator {
    apalis_postgres::PostgresStorage::<()>::migrations()
}
