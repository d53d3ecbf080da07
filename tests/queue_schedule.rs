//! The scheduler and pruning (case Q7, D5).

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use onehold::db::Db;
use onehold::queue::catalogue::{HOUSEKEEPING, Housekeeping};
use onehold::queue::schedule::{self, MINUTELY};
use onehold::queue::{Pruned, decode, prune};
use tokio::sync::{Barrier, mpsc};
use tokio_util::sync::CancellationToken;

use crate::queue_support::{Worker, count, fast, handler, row, until};
use crate::support::database;

async fn keys(db: &Db) -> Vec<String> {
    sqlx::query_scalar("select idempotency_key from apalis.jobs order by 1").fetch_all(db.pool()).await.unwrap()
}

#[tokio::test]
async fn three_schedulers_enqueue_each_tick_once_even_after_its_work_is_done() {
    let test = database().await;
    let at: DateTime<Utc> = "2026-09-01T12:00:00Z".parse().unwrap();
    let barrier = Arc::new(Barrier::new(3));
    let mut schedulers = Vec::new();
    for _ in 0..3 {
        let (db, barrier) = (test.db.clone(), barrier.clone());
        schedulers.push(tokio::spawn(async move {
            barrier.wait().await;
            schedule::tick(&db, at).await.unwrap()
        }));
    }
    let mut put = 0;
    for scheduler in schedulers {
        put += scheduler.await.unwrap();
    }
    assert_eq!(put, 4);
    assert_eq!(
        keys(&test.db).await,
        ["prune", "requeue", "roll_up", "sweep"].map(|task| format!("{task}:2026-09-01T12:00:00Z"))
    );
    let (said, mut heard) = mpsc::unbounded_channel();
    let run = handler(move |d| {
        said.send(decode::<Housekeeping>(&d).unwrap().task.name()).unwrap();
        async { Ok(()) }
    });
    let worker = Worker::start(&test.url, HOUSEKEEPING, 1, run, fast()).await;
    until("all done", async || count(&test.db, "Done").await == 4).await;
    // A scheduler whose clock is behind comes to this minute only now.
    assert_eq!(schedule::tick(&test.db, at).await.unwrap(), 0);
    assert_eq!(schedule::tick(&test.db, at + Duration::from_secs(60)).await.unwrap(), 4);
    until("the next minute's too", async || count(&test.db, "Done").await == 8).await;
    worker.stop().await;
    let mut tasks = Vec::new();
    while let Ok(task) = heard.try_recv() {
        tasks.push(task);
    }
    tasks.sort_unstable();
    assert_eq!(tasks, ["prune", "prune", "requeue", "requeue", "roll_up", "roll_up", "sweep", "sweep"]);
}

#[tokio::test]
async fn schedulers_catch_up_at_their_start_once_and_stop_when_told() {
    let test = database().await;
    let stop = CancellationToken::new();
    // A schedule without a tick while the test runs.
    let start = || tokio::spawn(schedule::run(test.db.clone(), "0 0 0 29 2 *", stop.clone()));
    let schedulers = [start(), start(), start()];
    until("the catch-up", async || keys(&test.db).await.len() >= 4).await;
    stop.cancel();
    for scheduler in schedulers {
        tokio::time::timeout(Duration::from_secs(10), scheduler).await.expect("stops").unwrap().unwrap();
    }
    // At the turn of a minute two minutes count; never more.
    let keys = keys(&test.db).await;
    assert!(keys.len() == 4 || keys.len() == 8, "{keys:?}");
    assert!(keys.iter().all(|key| key.ends_with(":00Z")), "{keys:?}");
    assert!(cron::Schedule::from_str(MINUTELY).unwrap().upcoming(Utc).take(3).all(|tick| tick.timestamp() % 60 == 0));
    assert!(schedule::run(test.db.clone(), "every now and then", stop).await.is_err());
}

#[test]
fn ticks_that_come_late_do_not_end_the_scheduler() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let test = database().await;
        let stop = CancellationToken::new();
        let scheduler = tokio::spawn(schedule::run(test.db.clone(), "* * * * * *", stop.clone()));
        until("the first ticks", async || keys(&test.db).await.len() >= 8).await;
        // The only thread is away for more than two ticks.
        std::thread::sleep(Duration::from_millis(2_500));
        let before = keys(&test.db).await.len();
        until("ticks afterwards", async || keys(&test.db).await.len() >= before + 12).await;
        assert!(!scheduler.is_finished());
        stop.cancel();
        scheduler.await.unwrap().unwrap();
    });
}

#[tokio::test]
async fn pruning_removes_what_is_old_enough_however_much_it_is_and_nothing_else() {
    let test = database().await;
    sqlx::raw_sql(
        "insert into apalis.jobs (id, job_type, job, status, done_at, idempotency_key)
             select status || age || n, 'reserve', '', status, now() - age::interval, status || ' ' || age || ' ' || n
             from (values ('Done', '59 min', 3), ('Done', '61 min', 2500), ('Killed', '13 days', 2), ('Killed', '15 days', 4))
                  j (status, age, many), generate_series(1, many) n;
         insert into apalis.jobs (id, job_type, job, status, lock_by, lock_at, attempts, max_attempts, idempotency_key)
             values ('1', 'reserve', '', 'Running', 'long gone', now() - '2 hours'::interval, 1, 5, 'runs'),
                    ('2', 'reserve', '', 'Running', 'unknown', now() - '1 minute'::interval, 1, 5, 'orphan'),
                    ('3', 'reserve', '', 'Running', null, null, 5, 5, 'spent orphan'),
                    ('4', 'reserve', '', 'Running', 'unknown', now(), 1, 5, 'just claimed'),
                    ('5', 'reserve', '', 'Pending', null, null, 0, 5, 'waits');
         insert into apalis.workers (id, worker_type, storage_name, last_seen)
             values ('long gone', 'reserve', '', now() - '2 hours'::interval),
                    ('gone and empty', 'reserve', '', now() - '2 hours'::interval),
                    ('just gone', 'reserve', '', now() - '9 minutes'::interval)",
    )
    .execute(test.db.pool())
    .await
    .unwrap();
    let pruned = prune(&test.db).await.unwrap();
    assert_eq!(pruned, Pruned { done: 2_500, killed: 4, workers: 1, orphans: 2 });
    assert_eq!((count(&test.db, "Done").await, count(&test.db, "Killed").await), (3, 2 + 1));
    let orphan = row(&test.db, "orphan").await;
    assert_eq!((orphan.status.as_str(), orphan.attempts, orphan.lock_by), ("Pending", 1, None));
    assert_eq!(row(&test.db, "spent orphan").await.status, "Killed");
    assert_eq!(row(&test.db, "runs").await.status, "Running");
    assert_eq!(row(&test.db, "just claimed").await.status, "Running");
    let left: Vec<String> =
        sqlx::query_scalar("select id from apalis.workers order by 1").fetch_all(test.db.pool()).await.unwrap();
    assert_eq!(left, ["just gone", "long gone"]);
    assert_eq!(prune(&test.db).await.unwrap(), Pruned::default());
}
