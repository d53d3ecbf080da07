//! How jobs get to their handlers: woken by a notification or by the poll, once, never more than can start
//! (cases Q5, Q6).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onehold::db::Verdict;
use onehold::queue::catalogue::{HOUSEKEEPING, Housekeeping, RESERVE, ReserveOrder, Task};
use onehold::queue::{Settings, decode, enqueue};
use tokio::sync::{Semaphore, mpsc};
use uuid::Uuid;

use crate::queue_support::{Worker, count, fast, handler, put, row, text, until};
use crate::support::database;

#[tokio::test]
async fn a_job_exists_exactly_when_the_transaction_that_enqueued_it_does() {
    let test = database().await;
    let payload = ReserveOrder { v: 1, shop: 1, order: Uuid::nil() };
    for (key, keep) in [("kept", true), ("undone", false)] {
        let put = test
            .db
            .transaction("test", |mut tx| {
                let payload = payload.clone();
                Box::pin(async move {
                    let put = enqueue::job(&mut *tx, key, &payload).await?;
                    Ok(if keep { Verdict::Commit(put) } else { Verdict::Rollback(put) })
                })
            })
            .await
            .unwrap();
        assert!(put);
    }
    assert_eq!(count(&test.db, "Pending").await, 1);

    let (said, mut heard) = mpsc::unbounded_channel();
    let run = handler(move |d| {
        said.send((d.queue, d.attempt, d.max_attempts, decode::<ReserveOrder>(&d).unwrap())).unwrap();
        async { Ok(()) }
    });
    let worker = Worker::start(&test.url, RESERVE, 2, run, fast()).await;
    assert_eq!(heard.recv().await, Some(("reserve", 1, RESERVE.max_attempts, payload)));
    until("done", async || row(&test.db, "kept").await.status == "Done").await;
    let done = row(&test.db, "kept").await;
    assert_eq!((done.attempts, done.ended, done.last_result), (1, true, Some(serde_json::json!({"Ok": null}))));
    worker.stop().await;
}

#[tokio::test]
async fn one_key_is_one_job_and_runs_again_only_when_it_has_ended() {
    let test = database().await;
    let payload = Housekeeping { v: 1, task: Task::Sweep };
    assert!(enqueue::job(test.db.pool(), "k", &payload).await.unwrap());
    assert!(!enqueue::job(test.db.pool(), "k", &payload).await.unwrap());
    let worker = Worker::start(&test.url, HOUSEKEEPING, 1, handler(|_| async { Ok(()) }), fast()).await;
    until("done", async || row(&test.db, "k").await.status == "Done").await;
    worker.stop().await;
    assert!(!enqueue::once(test.db.pool(), "k", &payload).await.unwrap());
    assert_eq!(row(&test.db, "k").await.status, "Done");
    assert!(enqueue::later(test.db.pool(), "k", &payload, Duration::from_secs(60)).await.unwrap());
    let again = row(&test.db, "k").await;
    assert_eq!((again.status.as_str(), again.attempts, again.ended, again.last_result), ("Pending", 0, false, None));
    let waits: bool = sqlx::query_scalar("select run_at > now() + '50 s'::interval from apalis.jobs")
        .fetch_one(test.db.pool())
        .await
        .unwrap();
    assert!(waits);
}

#[tokio::test]
async fn a_notification_starts_a_job_long_before_the_next_poll() {
    let test = database().await;
    let (said, mut heard) = mpsc::unbounded_channel();
    let run = handler(move |d| {
        said.send(text(&d)).unwrap();
        async { Ok(()) }
    });
    let settings = Settings { poll: Duration::from_secs(600), ..fast() };
    let worker = Worker::start(&test.url, RESERVE, 2, run, settings).await;
    // The first job is found by the look at the start or by the listener's, both of which end the start-up.
    for n in 0..20 {
        put(&test.db, RESERVE, &format!("k{n}"), &n.to_string(), 5).await;
        test.db.notifier().job(RESERVE.name);
        let got = tokio::time::timeout(Duration::from_secs(20), heard.recv()).await.expect("woken").unwrap();
        assert_eq!(got, n.to_string());
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_lost_notification_costs_one_poll() {
    let test = database().await;
    let (said, mut heard) = mpsc::unbounded_channel();
    let run = handler(move |_| {
        said.send(Instant::now()).unwrap();
        async { Ok(()) }
    });
    let settings = Settings { poll: Duration::from_secs(1), ..fast() };
    let worker = Worker::start(&test.url, RESERVE, 2, run, settings).await;
    for n in 0..3 {
        let put_at = Instant::now();
        put(&test.db, RESERVE, &format!("k{n}"), "", 5).await;
        let started = tokio::time::timeout(Duration::from_secs(20), heard.recv()).await.expect("polled").unwrap();
        assert!(started - put_at < Duration::from_secs(5), "{:?}", started - put_at);
    }
    worker.stop().await;
}

#[tokio::test]
async fn each_job_is_executed_once_however_slow_the_others_are() {
    let test = database().await;
    for n in 0..60 {
        put(&test.db, RESERVE, &format!("k{n}"), &n.to_string(), 5).await;
    }
    let runs: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let gate = Arc::new(Semaphore::new(0));
    let mut workers = Vec::new();
    for _ in 0..2 {
        let (runs, gate) = (runs.clone(), gate.clone());
        let run = handler(move |d| {
            let (runs, gate) = (runs.clone(), gate.clone());
            async move {
                *runs.lock().unwrap().entry(text(&d)).or_default() += 1;
                // The first jobs are slow: they wait until all others are done.
                if text(&d).parse::<usize>().unwrap() < 2 {
                    gate.acquire().await.unwrap().forget();
                }
                Ok(())
            }
        });
        workers.push(Worker::start(&test.url, RESERVE, 3, run, fast()).await);
    }
    until("the fast ones", async || count(&test.db, "Done").await == 58).await;
    assert_eq!(count(&test.db, "Running").await, 2);
    gate.add_permits(2);
    until("the slow ones", async || count(&test.db, "Done").await == 60).await;
    for worker in workers {
        worker.stop().await;
    }
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), 60);
    assert!(runs.values().all(|&n| n == 1), "{runs:?}");
}

#[tokio::test]
async fn nothing_is_claimed_that_cannot_start_at_once() {
    let test = database().await;
    for n in 0..10 {
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
    let worker = Worker::start(&test.url, RESERVE, 4, run, fast()).await;
    until("four start", async || started.load(Ordering::SeqCst) == 4).await;
    // Some polls later nothing has changed: six jobs are free for any other process, with no attempt charged.
    let beats = || async {
        sqlx::query_scalar::<_, f64>(
            "select extract(epoch from max(last_seen) - max(started_at))::float8 from apalis.workers",
        )
        .fetch_one(test.db.pool())
        .await
        .unwrap()
    };
    let before = beats().await;
    until("some polls", async || beats().await > before + 0.5).await;
    assert_eq!(count(&test.db, "Running").await, 4);
    let untouched: i64 =
        sqlx::query_scalar("select count(*) from apalis.jobs where status = 'Pending' and attempts = 0")
            .fetch_one(test.db.pool())
            .await
            .unwrap();
    assert_eq!(untouched, 6);
    gate.add_permits(10);
    until("all", async || count(&test.db, "Done").await == 10).await;
    worker.stop().await;
}

/// The statement with which the worker claims, as its session last sent it.
async fn claim_statement(db: &onehold::db::Db) -> String {
    let mut found = None;
    until("a claim in pg_stat_activity", async || {
        found = sqlx::query_scalar::<_, String>(
            "select query from pg_stat_activity
             where datname = current_database() and query like 'update apalis.jobs%skip locked%returning id, job%'
               and pid <> pg_backend_pid()",
        )
        .fetch_optional(db.pool())
        .await
        .unwrap();
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[tokio::test]
async fn a_look_stays_a_short_index_scan_with_many_finished_jobs_and_a_long_open_transaction() {
    const FINISHED: i32 = 200_000;
    let test = database().await;
    let worker = Worker::start(&test.url, RESERVE, 2, handler(|_| async { Ok(()) }), fast()).await;
    let claim = claim_statement(&test.db).await;
    worker.stop().await;

    sqlx::query(
        "insert into apalis.jobs (id, job_type, job, max_attempts, run_at, idempotency_key)
         select 'J' || n, 'reserve', '', 20, now() - '1 hour'::interval + n * interval '10 ms', n::text
         from generate_series(1, $1) n",
    )
    .bind(FINISHED)
    .execute(test.db.pool())
    .await
    .unwrap();
    // A reader elsewhere that began before the jobs were done: their dead index entries cannot be removed.
    let mut elsewhere = <sqlx::PgConnection as sqlx::Connection>::connect(&test.url).await.unwrap();
    sqlx::raw_sql("begin isolation level repeatable read; select count(*) from apalis.workers")
        .execute(&mut elsewhere)
        .await
        .unwrap();
    for step in ["status = 'Running', attempts = 1", "status = 'Done', done_at = now()"] {
        let mut conn = <sqlx::PgConnection as sqlx::Connection>::connect(&test.url).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("update apalis.jobs set {step}"))).execute(&mut conn).await.unwrap();
    }
    let pages = async |window: u32, mode: &str| -> (String, i64) {
        // A session without the settings of the queue's own, with what its statement may meet: an estimate
        // made for the very values, and one made for any.
        let mut conn = <sqlx::PgConnection as sqlx::Connection>::connect(&test.url).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("set plan_cache_mode = {mode}; prepare claim as {claim}")))
            .execute(&mut conn)
            .await
            .unwrap();
        let explain = format!("explain (analyze, buffers, format json) execute claim ('reserve', 'w', 16, {window})");
        let plan: serde_json::Value =
            sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).persistent(false).fetch_one(&mut conn).await.unwrap();
        let top = &plan[0]["Plan"];
        let pages = top["Shared Hit Blocks"].as_i64().unwrap() + top["Shared Read Blocks"].as_i64().unwrap();
        (plan.to_string(), pages)
    };
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let (plan, short) = pages(61, mode).await;
        assert!(plan.contains(r#""Index Name":"jobs_due""#) && !plan.contains("Seq Scan"), "{plan}");
        assert!(short < 50, "an ordinary look reads {short} pages");
        // What the bound is for: without it the look walks over everything that was ever due.
        let (plan, full) = pages(1_000_000_000, mode).await;
        assert!(plan.contains(r#""Index Name":"jobs_due""#) && !plan.contains("Seq Scan"), "{plan}");
        assert!(full > 20 * short, "the scene is not what it should be: {full} and {short} pages");
    }
    drop(elsewhere);
}
