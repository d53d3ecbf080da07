//! Worker processes as tests see them: started and stopped in this process, with short times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use onehold::db::{Db, Notices};
use onehold::queue::catalogue::Queue;
use onehold::queue::{Delivery, Handler, JobError, Settings};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// After this a condition that has not come is a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// Much shorter than the real times; a machine that is busy with other tests must not look dead.
pub(crate) fn fast() -> Settings {
    Settings {
        heartbeat: Duration::from_millis(100),
        dead_after: Duration::from_secs(2),
        poll: Duration::from_millis(100),
        grace: Duration::from_secs(10),
        backoff_base: Duration::from_millis(10),
        backoff_cap: Duration::from_millis(50),
        ..Settings::default()
    }
}

/// A worker process inside this one.
pub(crate) struct Worker {
    stop: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
    _notices: Notices,
}

impl Worker {
    pub(crate) async fn start(url: &str, queue: Queue, at_once: u16, handler: Handler, settings: Settings) -> Self {
        Self::on(Db::connect(url, 5).await.unwrap(), queue, at_once, handler, settings)
    }

    /// As [`Worker::start`], on a handle that the test holds too.
    pub(crate) fn on(db: Db, queue: Queue, at_once: u16, handler: Handler, settings: Settings) -> Self {
        let notices = Notices::start(&db);
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (notices, stop) = (notices.clone(), stop.clone());
            async move { onehold::queue::run(db, &notices, vec![(queue, at_once)], handler, settings, stop).await }
        });
        Self { stop, running, _notices: notices }
    }

    /// Ends without order, as by `kill -9`.
    pub(crate) async fn kill(self) {
        self.running.abort();
        assert!(self.running.await.unwrap_err().is_cancelled());
    }

    /// Asks it to stop, and does not wait.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Ends in order.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.running).await.expect("stops in time").unwrap().unwrap();
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.running.is_finished()
    }
}

/// A handler from an async function.
pub(crate) fn handler<F, Fut>(run: F) -> Handler
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), JobError>> + Send + 'static,
{
    Arc::new(move |delivery| run(delivery).boxed())
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < PATIENCE, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A job's row.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub(crate) struct Row {
    pub(crate) status: String,
    pub(crate) attempts: i32,
    pub(crate) lock_by: Option<String>,
    pub(crate) ended: bool,
    pub(crate) last_result: Option<serde_json::Value>,
}

impl Row {
    /// The text of its last failure.
    pub(crate) fn error(&self) -> String {
        self.last_result.as_ref().and_then(|r| r["Err"].as_str()).unwrap_or_default().to_owned()
    }
}

/// The row of the job with this key.
pub(crate) async fn row(db: &Db, key: &str) -> Row {
    sqlx::query_as(
        "select status, attempts, lock_by, done_at is not null as ended, last_result
         from apalis.jobs where idempotency_key = $1",
    )
    .bind(key)
    .fetch_one(db.pool())
    .await
    .unwrap()
}

/// How many jobs have this status.
pub(crate) async fn count(db: &Db, status: &str) -> i64 {
    sqlx::query_scalar("select count(*) from apalis.jobs where status = $1")
        .bind(status)
        .fetch_one(db.pool())
        .await
        .unwrap()
}

/// Puts a job into a queue, from the outside, with any payload. Says nothing to anybody.
pub(crate) async fn put(db: &Db, queue: Queue, key: &str, payload: &str, max_attempts: i32) {
    sqlx::query(
        "insert into apalis.jobs (id, job_type, job, max_attempts, idempotency_key)
         values (apalis.generate_ulid(), $1, convert_to($2, 'UTF8'), $3, $4)",
    )
    .bind(queue.name)
    .bind(payload)
    .bind(max_attempts)
    .bind(key)
    .execute(db.pool())
    .await
    .unwrap();
}

/// The keys of the jobs as payloads, so that a handler knows which one it has.
pub(crate) fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload.clone()).unwrap()
}
