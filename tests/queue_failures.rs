//! Jobs that fail: backoff in the database, dead letters, panics, payloads and rows that nobody can read
//! (case Q2).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::anyhow;
use onehold::queue::catalogue::{RESERVE, ReserveOrder};
use onehold::queue::{JobError, Settings, decode};
use tokio::sync::Semaphore;

use crate::queue_support::{Worker, count, fast, handler, put, row, text, until};
use crate::support::database;

#[tokio::test]
async fn a_failed_attempt_is_tried_again_until_it_works() {
    let test = database().await;
    put(&test.db, RESERVE, "k", "", 5).await;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let run = handler({
        let attempts = attempts.clone();
        move |d| {
            attempts.lock().unwrap().push(d.attempt);
            async move { if d.attempt < 3 { Err(anyhow!("not yet").into()) } else { Ok(()) } }
        }
    });
    let worker = Worker::start(&test.url, RESERVE, 2, run, fast()).await;
    until("done", async || row(&test.db, "k").await.status == "Done").await;
    worker.stop().await;
    assert_eq!(*attempts.lock().unwrap(), [1, 2, 3]);
    assert_eq!(row(&test.db, "k").await.attempts, 3);
}

#[tokio::test]
async fn the_pause_after_a_failure_is_kept_in_the_database_random_and_bounded() {
    let test = database().await;
    for n in 0..30 {
        put(&test.db, RESERVE, &format!("k{n}"), "", 5).await;
    }
    put(&test.db, RESERVE, "said", "said", 5).await;
    put(&test.db, RESERVE, "said too often", "said", 1).await;
    let run = handler(|d| async move {
        match text(&d).as_str() {
            "said" => Err(JobError::RetryAfter(Duration::from_secs(7_200), anyhow!("in two hours"))),
            _ => Err(anyhow!("no").into()),
        }
    });
    let hour = Duration::from_secs(3_600);
    let settings = Settings { backoff_base: hour, backoff_cap: hour, ..fast() };
    let worker = Worker::start(&test.url, RESERVE, 8, run, settings).await;
    until("all have failed", async || count(&test.db, "Failed").await == 31).await;
    until("one has no attempts left", async || row(&test.db, "said too often").await.status == "Killed").await;
    worker.stop().await;
    let waits: Vec<f64> = sqlx::query_scalar(
        "select extract(epoch from run_at - clock_timestamp())::float8 from apalis.jobs
         where idempotency_key not like 'said%' and attempts = 1 order by 1",
    )
    .fetch_all(test.db.pool())
    .await
    .unwrap();
    assert!(waits.len() >= 25, "{waits:?}");
    assert!(*waits.last().unwrap() <= 3_600.0);
    assert!(waits.last().unwrap() - waits.first().unwrap() > 600.0, "no jitter: {waits:?}");
    let said: f64 = sqlx::query_scalar(
        "select extract(epoch from run_at - clock_timestamp())::float8 from apalis.jobs where idempotency_key = 'said'",
    )
    .fetch_one(test.db.pool())
    .await
    .unwrap();
    assert!((7_000.0..=7_200.0).contains(&said), "{said}");
    let failed = row(&test.db, "said").await;
    assert_eq!((failed.error().as_str(), failed.ended, failed.attempts), ("in two hours", false, 1));
}

#[tokio::test]
async fn the_next_attempt_does_not_wait_for_the_poll() {
    let test = database().await;
    let run = handler(|d| async move { if d.attempt < 10 { Err(anyhow!("not yet").into()) } else { Ok(()) } });
    put(&test.db, RESERVE, "k", "", 20).await;
    let settings = Settings { poll: Duration::from_secs(600), ..fast() };
    let worker = Worker::start(&test.url, RESERVE, 1, run, settings).await;
    until("done", async || row(&test.db, "k").await.status == "Done").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_always_panics_is_a_dead_letter_after_its_attempts_and_the_others_go_on() {
    let test = database().await;
    put(&test.db, RESERVE, "panics", "panics", 3).await;
    put(&test.db, RESERVE, "panics early", "panics early", 2).await;
    for n in 0..20 {
        put(&test.db, RESERVE, &format!("k{n}"), "", 3).await;
    }
    let runs: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let run = handler({
        let runs = runs.clone();
        move |d| {
            *runs.lock().unwrap().entry(text(&d)).or_default() += 1;
            assert!(text(&d) != "panics early", "before its future");
            async move {
                assert!(text(&d) != "panics", "out of its wits");
                Ok(())
            }
        }
    });
    let worker = Worker::start(&test.url, RESERVE, 4, run, fast()).await;
    until("the others", async || count(&test.db, "Done").await == 20).await;
    until("dead letters", async || count(&test.db, "Killed").await == 2).await;
    assert!(worker.is_running());
    worker.stop().await;
    let dead = row(&test.db, "panics").await;
    assert_eq!((dead.attempts, dead.ended), (3, true));
    assert!(dead.error().contains("panicked: out of its wits"), "{}", dead.error());
    assert!(row(&test.db, "panics early").await.error().contains("before its future"));
    let runs = runs.lock().unwrap();
    assert_eq!((runs["panics"], runs["panics early"]), (3, 2));
}

#[tokio::test]
async fn what_cannot_be_read_is_a_dead_letter_at_once_and_a_newer_payload_waits_for_a_newer_worker() {
    let test = database().await;
    let good = r#"{"v":1,"shop":1,"order":"00000000-0000-0000-0000-000000000000"}"#;
    let unreadable =
        ["", "null", "[]", "{", r#"{"v":1}"#, r#"{"v":1,"shop":"x","order":7}"#, r#"{"v":"1"}"#, r#"{"v":-1}"#];
    for (n, payload) in unreadable.iter().enumerate() {
        put(&test.db, RESERVE, &format!("bad{n}"), payload, 5).await;
    }
    sqlx::query(
        r"insert into apalis.jobs (id, job_type, job, idempotency_key) values ('not an ulid', 'reserve', '\x00fffe', 'bytes')",
    )
    .execute(test.db.pool())
    .await
    .unwrap();
    put(&test.db, RESERVE, "newer", r#"{"v":2,"shop":1,"order":"x","more":true}"#, 5).await;
    put(&test.db, RESERVE, "good", good, 5).await;
    let run = handler(|d| async move { decode::<ReserveOrder>(&d).map(|_| ()) });
    let settings = Settings { backoff_base: Duration::from_secs(3_600), ..fast() };
    let worker = Worker::start(&test.url, RESERVE, 4, run, settings).await;
    until("dead letters", async || count(&test.db, "Killed").await == unreadable.len() as i64 + 1).await;
    until("the good one", async || row(&test.db, "good").await.status == "Done").await;
    until("the newer one", async || row(&test.db, "newer").await.status == "Failed").await;
    assert!(worker.is_running());
    worker.stop().await;
    for key in ["bytes", "bad0", "bad4"] {
        let dead = row(&test.db, key).await;
        assert_eq!((dead.attempts, dead.ended), (1, true));
        assert!(dead.error().contains("unreadable payload in job"), "{}", dead.error());
    }
    assert!(row(&test.db, "bad4").await.error().contains("missing field `shop`"));
    assert!(row(&test.db, "newer").await.error().contains("newer than this release"));
}

#[tokio::test]
async fn a_text_that_the_database_refuses_spoils_no_acknowledgement() {
    let test = database().await;
    for key in ["nul", "long", "fine"] {
        put(&test.db, RESERVE, key, key, 5).await;
    }
    let run = handler(|d| async move {
        match text(&d).as_str() {
            "nul" => Err(JobError::Dead(anyhow!("a\0b"))),
            "long" => Err(JobError::Dead(anyhow!("ä".repeat(1_000_000)))),
            _ => Ok(()),
        }
    });
    let worker = Worker::start(&test.url, RESERVE, 4, run, fast()).await;
    until("all ended", async || count(&test.db, "Killed").await == 2 && count(&test.db, "Done").await == 1).await;
    worker.stop().await;
    assert_eq!(row(&test.db, "nul").await.error(), "a\u{fffd}b");
    assert!(row(&test.db, "long").await.error().len() < 9_000);
}

#[tokio::test]
async fn rows_that_nobody_should_have_written_hurt_nobody_else() {
    let test = database().await;
    sqlx::raw_sql(
        "insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, run_at, priority) values
             ('most attempts', 'reserve', '', 'Pending', 2147483647, 5, '2000-01-01', 0),
             ('fewer than none', 'reserve', '', 'Pending', -7, -7, '2000-01-01', null),
             ('a future status', 'reserve', '', 'Sleeping', 0, 5, '2000-01-01', 0),
             ('before all time', 'reserve', '', 'Pending', 0, 5, '-infinity', 9),
             ('never', 'reserve', '', 'Pending', 0, 5, 'infinity', 0);
         insert into apalis.jobs (id, job_type, job, status, max_attempts, lock_by)
             values ('in nobody''s hand', 'reserve', '', 'Running', 5, null)",
    )
    .execute(test.db.pool())
    .await
    .unwrap();
    put(&test.db, RESERVE, "good", "", 5).await;
    let worker = Worker::start(&test.url, RESERVE, 2, handler(|_| async { Ok(()) }), fast()).await;
    until("the good one", async || row(&test.db, "good").await.status == "Done").await;
    until("the odd ones that can run", async || count(&test.db, "Done").await == 3).await;
    assert!(worker.is_running());
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_hangs_is_ended_and_counts_as_failed() {
    let test = database().await;
    put(&test.db, RESERVE, "hangs", "", 2).await;
    let settings = Settings { longest_run: Duration::from_millis(50), ..fast() };
    let run = handler(|_| std::future::pending());
    let worker = Worker::start(&test.url, RESERVE, 1, run, settings).await;
    until("a dead letter", async || row(&test.db, "hangs").await.status == "Killed").await;
    worker.stop().await;
    let dead = row(&test.db, "hangs").await;
    assert_eq!((dead.attempts, dead.error().as_str()), (2, "took longer than 0.05 s"));
}

#[tokio::test]
async fn a_job_whose_row_is_locked_by_others_keeps_no_other_result_from_being_written() {
    let test = database().await;
    for key in ["locked", "free"] {
        put(&test.db, RESERVE, key, key, 5).await;
    }
    let gate = Arc::new(Semaphore::new(0));
    let run = handler({
        let gate = gate.clone();
        move |_| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    });
    let worker = Worker::start(&test.url, RESERVE, 2, run, fast()).await;
    until("both run", async || count(&test.db, "Running").await == 2).await;
    let mut elsewhere = <sqlx::PgConnection as sqlx::Connection>::connect(&test.url).await.unwrap();
    sqlx::raw_sql("begin; select from apalis.jobs where idempotency_key = 'locked' for update")
        .execute(&mut elsewhere)
        .await
        .unwrap();
    gate.add_permits(2);
    until("the free one", async || row(&test.db, "free").await.status == "Done").await;
    assert_eq!(row(&test.db, "locked").await.status, "Running");
    sqlx::raw_sql("rollback").execute(&mut elsewhere).await.unwrap();
    until("the locked one", async || row(&test.db, "locked").await.status == "Done").await;
    worker.stop().await;
    assert_eq!(row(&test.db, "locked").await.attempts, 1);
}
