//! What the parts of one worker process share.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::{Notify, SetOnce};
use uuid::Uuid;

use super::Settings;
use super::catalogue::Queue;
use crate::db::{ACQUIRE_TIMEOUT, Db};

/// Claims and acknowledgements run on so many connections of their own: jobs that use up the whole pool
/// must not keep the queue from getting on.
const OWN_CONNECTIONS: u32 = 3;
/// A claim whose answer was lost shows in the database within this time: longer than the server works on a
/// statement whose client is gone.
const LOST_CLAIMS_SHOW: Duration = Duration::from_secs(30);

/// One start of a worker process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) db: Db,
    /// For the queue's own statements.
    pub(super) pool: PgPool,
    pub(super) settings: Settings,
    pub(super) lines: Vec<Arc<Line>>,
    pub(super) held: Held,
    /// Set by the first heartbeat. Nothing is claimed before: nobody would miss us.
    pub(super) registered: SetOnce<()>,
}

/// One queue in this process.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) queue: Queue,
    /// Who holds this line's jobs: a name that no other process start has, because a name that comes back
    /// would hide that its former bearer died.
    pub(super) worker: String,
    /// Wakes its fetcher from inside this process.
    pub(super) wake: Notify,
}

impl Process {
    pub(super) fn new(db: Db, queues: &[Queue], settings: Settings) -> Self {
        let host = gethostname::gethostname();
        let start = format!("{}-{}-{}", host.to_string_lossy(), std::process::id(), Uuid::now_v7());
        let line = |queue: &Queue| {
            Arc::new(Line { queue: *queue, worker: format!("{start}/{}", queue.name), wake: Notify::new() })
        };
        let pool = PgPoolOptions::new()
            .max_connections(OWN_CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_lazy_with(options(&db));
        Self {
            lines: queues.iter().map(line).collect(),
            db,
            pool,
            settings,
            held: Held::default(),
            registered: SetOnce::new(),
        }
    }

    /// The names of all its workers, one per queue.
    pub(super) fn workers(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.worker.clone()).collect()
    }
}

/// How the queue's own connections are made. Its statements find everything by an index, and must go on to
/// do so while the statistics say that the table is still empty; and with arrays of any length, so one plan serves.
///
/// Their commits wait for no fsync: a claim or an acknowledgement that a crash of the server loses only runs a job
/// again, and what a job itself commits takes with it to the disk all that was written before.
pub(super) fn options(db: &Db) -> PgConnectOptions {
    db.options().clone().options([
        ("enable_seqscan", "off"),
        ("jit", "off"),
        ("plan_cache_mode", "force_generic_plan"),
        ("synchronous_commit", "off"),
    ])
}

/// Each queue among `names`, once.
pub(super) fn queues_of(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().map(String::as_str).collect::<BTreeSet<_>>().into_iter()
}

/// The executions that this process knows it has: claimed, and not yet acknowledged.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    executions: HashSet<(String, DateTime<Utc>)>,
    claim_lost: Option<Instant>,
}

impl Held {
    pub(super) fn add(&self, id: &str, lock_at: DateTime<Utc>) {
        self.known().executions.insert((id.to_owned(), lock_at));
    }

    pub(super) fn remove(&self, id: &str, lock_at: DateTime<Utc>) {
        self.known().executions.remove(&(id.to_owned(), lock_at));
    }

    /// All of them, column by column.
    pub(super) fn columns(&self) -> (Vec<String>, Vec<DateTime<Utc>>) {
        self.known().executions.iter().cloned().unzip()
    }

    /// The answer to a claim was lost: the database may hold jobs for us that we do not know.
    pub(super) fn claim_lost(&self) {
        self.known().claim_lost = Some(Instant::now());
    }

    /// Whether such a claim may still show.
    pub(super) fn may_miss_some(&self) -> bool {
        self.known().claim_lost.is_some_and(|at| at.elapsed() < LOST_CLAIMS_SHOW)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No code panics while it holds this; and if it did, it is whole after every call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_queues_own_commits_wait_for_no_fsync() {
        let db = Db::connect_lazy("postgres://nobody@localhost/nothing", 1).unwrap();
        assert!(options(&db).get_options().unwrap().contains("synchronous_commit=off"));
        assert!(!db.options().get_options().unwrap().contains("synchronous_commit"));
    }
}
