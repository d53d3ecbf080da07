//! The end of a worker process (case Q4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onehold::queue::Settings;
use onehold::queue::catalogue::RESERVE;
use tokio::sync::Semaphore;

use crate::queue_support::{Worker, count, fast, handler, put, row, until};
use crate::support::database;

async fn workers(db: &onehold::db::Db) -> i64 {
    sqlx::query_scalar("select count(*) from apalis.workers").fetch_one(db.pool()).await.unwrap()
}

#[tokio::test]
async fn running_jobs_end_within_the_grace_and_nothing_new_is_begun() {
    let test = database().await;
    for n in 0..6 {
        put(&test.db, RESERVE, &format!("k{n}"), "", 5).await;
    }
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let run = handler({
        let (gate, started) = (gate.clone(), started.clone());
        move |_| {
            let (gate, started) = (gate.clone(), started.clone());
            async move {
                started.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    });
    let worker = Worker::start(&test.url, RESERVE, 2, run, fast()).await;
    until("two run", async || started.load(Ordering::SeqCst) == 2).await;
    assert_eq!(workers(&test.db).await, 1);
    worker.ask_to_stop();
    gate.add_permits(6);
    worker.stop().await;
    assert_eq!(started.load(Ordering::SeqCst), 2);
    assert_eq!((count(&test.db, "Done").await, count(&test.db, "Pending").await), (2, 4));
    assert_eq!(workers(&test.db).await, 0);
}

#[tokio::test]
async fn jobs_that_outlast_the_grace_go_back_to_the_queue_uncharged() {
    let test = database().await;
    for key in ["waits", "blocks"] {
        put(&test.db, RESERVE, key, key, 1).await;
    }
    let started = Arc::new(AtomicUsize::new(0));
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    let run = handler({
        let started = started.clone();
        move |d| {
            let (started, held) = (started.clone(), held.clone());
            async move {
                started.fetch_add(1, Ordering::SeqCst);
                if d.payload == b"waits" {
                    return std::future::pending().await;
                }
                // Not even this can keep the process: it does not listen to anything.
                tokio::task::spawn_blocking(move || held.lock().unwrap().recv()).await.unwrap().unwrap();
                Ok(())
            }
        }
    });
    let settings = Settings { grace: Duration::from_millis(50), ..fast() };
    let worker = Worker::start(&test.url, RESERVE, 2, run, settings).await;
    until("both run", async || started.load(Ordering::SeqCst) == 2).await;
    worker.stop().await;
    for key in ["waits", "blocks"] {
        let back = row(&test.db, key).await;
        assert_eq!((back.status.as_str(), back.attempts, back.lock_by, back.ended), ("Pending", 0, None, false));
    }
    assert_eq!(workers(&test.db).await, 0);
    let_go.send(()).unwrap();

    // And it has all its attempts elsewhere: here, its only one.
    let next = Worker::start(&test.url, RESERVE, 2, handler(|_| async { Ok(()) }), fast()).await;
    until("done elsewhere", async || count(&test.db, "Done").await == 2).await;
    next.stop().await;
}

#[tokio::test]
async fn a_worker_that_cannot_reach_its_database_stops_in_time_and_says_so() {
    let db = onehold::db::Db::connect_lazy("postgres://nobody@127.0.0.1:1/nowhere", 2).unwrap();
    let notices = onehold::db::Notices::start(&db);
    let stop = tokio_util::sync::CancellationToken::new();
    let settings = Settings { grace: Duration::ZERO, closing: Duration::from_millis(100), ..fast() };
    let run = handler(|_| async { Ok(()) });
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { onehold::queue::run(db, &notices, vec![(RESERVE, 1)], run, settings, stop).await }
    });
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(10), running).await.expect("stops").unwrap();
    assert!(ended.unwrap_err().to_string().contains("did not take the jobs back in time"));
}
