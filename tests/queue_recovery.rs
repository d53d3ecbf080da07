//! Workers that die, or seem to, and a database that goes away (cases Q1, Q3, Q8).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use onehold::db::Db;
use onehold::queue::catalogue::RESERVE;
use onehold::queue::{Handler, JobError, Settings};
use sqlx::Connection as _;
use tokio::sync::Semaphore;

use crate::queue_support::{Worker, count, fast, handler, put, row, text, until};
use crate::support::{Database, database};

type Runs = Arc<Mutex<HashMap<String, u32>>>;

/// A handler that notes each start and then waits at the gate.
fn gated(runs: &Runs, gate: &Arc<Semaphore>) -> Handler {
    let (runs, gate) = (runs.clone(), gate.clone());
    handler(move |d| {
        let (runs, gate) = (runs.clone(), gate.clone());
        async move {
            *runs.lock().unwrap().entry(text(&d)).or_default() += 1;
            gate.acquire().await.unwrap().forget();
            Ok(())
        }
    })
}

fn started(runs: &Runs, job: &str) -> u32 {
    runs.lock().unwrap().get(job).copied().unwrap_or_default()
}

async fn run_sql(db: &Db, statement: &'static str) {
    sqlx::raw_sql(statement).execute(db.pool()).await.unwrap();
}

#[tokio::test]
async fn the_job_of_a_killed_worker_runs_again_elsewhere_with_its_attempt_counted() {
    let test = database().await;
    put(&test.db, RESERVE, "k", "k", 5).await;
    let (runs, gate): (Runs, _) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let first = Worker::start(&test.url, RESERVE, 2, gated(&runs, &gate), fast()).await;
    until("it runs", async || started(&runs, "k") == 1).await;
    first.kill().await;
    assert_eq!(row(&test.db, "k").await.status, "Running");

    let second = Worker::start(&test.url, RESERVE, 2, gated(&runs, &gate), fast()).await;
    until("it runs again", async || started(&runs, "k") == 2).await;
    let again = row(&test.db, "k").await;
    assert_eq!((again.status.as_str(), again.attempts), ("Running", 2));
    gate.add_permits(1);
    until("it is done", async || row(&test.db, "k").await.status == "Done").await;
    second.stop().await;
}

#[tokio::test]
async fn a_job_that_kills_its_worker_each_time_is_a_dead_letter_and_jobs_of_the_living_stay() {
    let test = database().await;
    run_sql(
        &test.db,
        "insert into apalis.workers (id, worker_type, storage_name, last_seen) values
             ('dead', 'reserve', '', now() - '1 minute'::interval), ('alive', 'reserve', '', now() + '1 hour'::interval);
         insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, lock_by, lock_at, idempotency_key)
         select k, 'reserve', convert_to(k, 'UTF8'), 'Running', n, 3, w, now() - '1 minute'::interval, k
         from (values ('spent', 3, 'dead'), ('left', 2, 'dead'), ('theirs', 3, 'alive')) j (k, n, w)",
    )
    .await;
    let runs = Runs::default();
    let worker = Worker::start(&test.url, RESERVE, 2, gated(&runs, &Arc::new(Semaphore::new(9))), fast()).await;
    until("both are judged", async || count(&test.db, "Killed").await == 1 && count(&test.db, "Done").await == 1).await;
    worker.stop().await;
    let spent = row(&test.db, "spent").await;
    assert_eq!((spent.status.as_str(), spent.attempts, spent.ended, spent.lock_by.clone()), ("Killed", 3, true, None));
    assert_eq!(spent.error(), "its worker was lost");
    assert_eq!(row(&test.db, "left").await.attempts, 3);
    assert_eq!(row(&test.db, "theirs").await.status, "Running");
    assert_eq!(*runs.lock().unwrap(), HashMap::from([("left".to_owned(), 1)]));
}

#[tokio::test]
async fn a_worker_that_was_taken_for_dead_cannot_overwrite_what_came_after_and_joins_again() {
    let test = database().await;
    put(&test.db, RESERVE, "k", "k", 5).await;
    let gate = Arc::new(Semaphore::new(0));
    let failing = handler({
        let gate = gate.clone();
        move |_| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Err(JobError::Dead(anyhow!("from the dead")))
            }
        }
    });
    let slow = Worker::start(&test.url, RESERVE, 1, failing, fast()).await;
    until("it runs", async || row(&test.db, "k").await.status == "Running").await;
    let name = row(&test.db, "k").await.lock_by;
    // What another process does that has not heard of this one for too long.
    run_sql(
        &test.db,
        "delete from apalis.workers; update apalis.jobs set status = 'Pending', lock_by = null, lock_at = null",
    )
    .await;
    let other = Worker::start(&test.url, RESERVE, 1, handler(|_| async { Ok(()) }), fast()).await;
    until("it is done elsewhere", async || row(&test.db, "k").await.status == "Done").await;
    let done = row(&test.db, "k").await;
    assert_eq!(done.attempts, 2);
    gate.add_permits(1);
    until("the slow one has its slot back", async || gate.available_permits() == 0).await;
    put(&test.db, RESERVE, "next", "", 5).await;
    put(&test.db, RESERVE, "after", "", 5).await;
    other.stop().await;
    gate.add_permits(2);
    until("it goes on", async || row(&test.db, "next").await.ended && row(&test.db, "after").await.ended).await;
    assert_eq!(row(&test.db, "k").await, done);
    until("it has joined again", async || {
        let joined = sqlx::query_scalar("select count(*) from apalis.workers where id = $1").bind(&name);
        joined.fetch_one(test.db.pool()).await.unwrap_or(0_i64) == 1
    })
    .await;
    slow.stop().await;
}

#[tokio::test]
async fn a_late_result_is_not_taken_for_that_of_a_later_run_with_the_same_worker_and_attempt() {
    let test = database().await;
    put(&test.db, RESERVE, "k", "k", 5).await;
    let (first, second) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let runs = Runs::default();
    let run = handler({
        let (first, second, runs) = (first.clone(), second.clone(), runs.clone());
        move |d| {
            let (first, second, runs) = (first.clone(), second.clone(), runs.clone());
            async move {
                let n = {
                    let mut runs = runs.lock().unwrap();
                    *runs.entry(text(&d)).and_modify(|n| *n += 1).or_insert(1)
                };
                if n == 1 && text(&d) == "k" {
                    first.acquire().await.unwrap().forget();
                    return Err(JobError::Dead(anyhow!("from an earlier life")));
                }
                second.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    });
    let worker = Worker::start(&test.url, RESERVE, 2, run, fast()).await;
    until("it runs", async || started(&runs, "k") == 1).await;
    // Taken over, ended, and enqueued again under its key, while the first run goes on.
    run_sql(&test.db, "update apalis.jobs set status = 'Pending', attempts = 0, lock_by = null, lock_at = null").await;
    until("it runs twice", async || started(&runs, "k") == 2).await;
    assert_eq!(row(&test.db, "k").await.attempts, 1);
    // The next job ends after the late result, so its acknowledgement shows that the late one was dealt with.
    first.add_permits(1);
    until("the first has ended", async || first.available_permits() == 0).await;
    put(&test.db, RESERVE, "next", "next", 5).await;
    until("the next runs", async || started(&runs, "next") == 1).await;
    second.add_permits(2);
    until("both are done", async || count(&test.db, "Done").await == 2).await;
    worker.stop().await;
    assert_eq!(row(&test.db, "k").await.attempts, 1);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_goes_back_uncharged_and_what_really_runs_stays() {
    let test = database().await;
    put(&test.db, RESERVE, "real", "real", 5).await;
    let (runs, gate): (Runs, _) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let run = handler({
        let (runs, gate) = (runs.clone(), gate.clone());
        move |d| {
            let (runs, gate) = (runs.clone(), gate.clone());
            async move {
                *runs.lock().unwrap().entry(text(&d)).or_default() += 1;
                if text(&d) == "real" {
                    gate.acquire().await.unwrap().forget();
                }
                Ok(())
            }
        }
    });
    let worker = Worker::start(&test.url, RESERVE, 2, run, fast()).await;
    until("it runs", async || started(&runs, "real") == 1).await;
    // As a claim leaves them whose answer does not arrive; the second shows that the look after the real job
    // had been held for long enough has passed.
    for (key, age) in [("lost", 6.0), ("lost later", -1.0)] {
        sqlx::query(
            "insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, lock_by, lock_at, idempotency_key)
             select $1, job_type, convert_to($1, 'UTF8'), 'Running', 1, 5, lock_by, clock_timestamp() - make_interval(secs => $2), $1
             from apalis.jobs where idempotency_key = 'real'",
        )
        .bind(key)
        .bind(age)
        .execute(test.db.pool())
        .await
        .unwrap();
    }
    for key in ["lost", "lost later"] {
        until("it runs after all", async || started(&runs, key) == 1).await;
        assert_eq!(row(&test.db, key).await.attempts, 1);
    }
    // Both looks have passed over the job that really runs.
    assert_eq!((started(&runs, "real"), row(&test.db, "real").await.status.as_str()), (1, "Running"));
    gate.add_permits(2);
    until("all are done", async || count(&test.db, "Done").await == 3).await;
    worker.stop().await;
    assert_eq!(started(&runs, "real"), 1);
    assert_eq!(row(&test.db, "real").await.attempts, 1);
}

/// A connection beside the database in question.
async fn beside(test: &Database) -> (sqlx::PgConnection, String) {
    let (server, name) = test.url.rsplit_once('/').unwrap();
    (sqlx::PgConnection::connect(&format!("{server}/postgres")).await.unwrap(), name.to_owned())
}

async fn hang_up(admin: &mut sqlx::PgConnection, name: &str) {
    sqlx::query("select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = $1")
        .bind(name)
        .execute(admin)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_worker_survives_a_database_that_hangs_up_again_and_again_and_loses_nothing() {
    let test = database().await;
    let runs = Runs::default();
    let gate = Arc::new(Semaphore::new(usize::MAX >> 4));
    let worker = Worker::start(&test.url, RESERVE, 4, gated(&runs, &gate), fast()).await;
    let (mut admin, name) = beside(&test).await;
    for round in 0..10 {
        for n in 0..20 {
            // The test's own connections are hung up, too.
            until("it is put", async || {
                let put = sqlx::query(
                    "insert into apalis.jobs (id, job_type, job, max_attempts, idempotency_key)
                     values ($1, 'reserve', convert_to($1, 'UTF8'), 20, $1) on conflict do nothing",
                );
                put.bind(format!("{round}-{n}")).execute(test.db.pool()).await.is_ok()
            })
            .await;
        }
        test.db.notifier().job(RESERVE.name);
        until("some have run", async || runs.lock().unwrap().len() > round * 20).await;
        hang_up(&mut admin, &name).await;
    }
    until("all are done", async || {
        let done = sqlx::query_scalar("select count(*) from apalis.jobs where status = 'Done'");
        done.fetch_one(test.db.pool()).await.unwrap_or(0_i64) == 200
    })
    .await;
    assert!(worker.is_running());
    // Not even its last words get lost.
    hang_up(&mut admin, &name).await;
    worker.stop().await;
    assert_eq!(runs.lock().unwrap().len(), 200);
}

/// How many workers have just beaten.
async fn beaten(db: &Db) -> i64 {
    let seen = sqlx::query_scalar(
        "select count(*) from apalis.workers where last_seen > clock_timestamp() - '300 ms'::interval",
    );
    seen.fetch_one(db.pool()).await.unwrap_or_default()
}

#[tokio::test]
async fn after_the_database_was_away_the_first_to_return_does_not_take_the_second_for_dead() {
    let test = database().await;
    for key in ["a", "b"] {
        put(&test.db, RESERVE, key, key, 5).await;
    }
    let (runs, gate): (Runs, _) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let mut workers = Vec::new();
    for most in 1..=2 {
        workers.push(Worker::start(&test.url, RESERVE, 1, gated(&runs, &gate), fast()).await);
        until("one more runs", async || runs.lock().unwrap().len() == most).await;
    }
    // A third one has nothing to do but to judge the others.
    workers.push(Worker::start(&test.url, RESERVE, 1, gated(&runs, &gate), fast()).await);
    until("it has beaten", async || beaten(&test.db).await == 3).await;
    let (mut admin, name) = beside(&test).await;
    let allow = |yes| sqlx::AssertSqlSafe(format!("alter database {name} with allow_connections {yes}"));
    sqlx::raw_sql(allow(false)).execute(&mut admin).await.unwrap();
    hang_up(&mut admin, &name).await;
    // Longer than a worker may be silent.
    let away = Instant::now();
    until("it was away for long", async || away.elapsed() > fast().dead_after * 2).await;
    sqlx::raw_sql(allow(true)).execute(&mut admin).await.unwrap();
    until("all have beaten again", async || beaten(&test.db).await == 3).await;
    gate.add_permits(9);
    until("both are done", async || count(&test.db, "Done").await == 2).await;
    for worker in workers {
        assert!(worker.is_running());
        worker.stop().await;
    }
    assert_eq!(*runs.lock().unwrap(), HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 1)]));
    assert_eq!((row(&test.db, "a").await.attempts, row(&test.db, "b").await.attempts), (1, 1));
}

#[tokio::test]
async fn a_worker_that_started_while_the_database_was_away_does_not_judge_at_once_either() {
    let test = database().await;
    let settings = Settings { dead_after: Duration::from_secs(5), ..fast() };
    // Of a worker that lives, and has not come back yet.
    run_sql(
        &test.db,
        "insert into apalis.workers (id, worker_type, storage_name, last_seen)
             values ('other', 'reserve', '', now() - '1 minute'::interval);
         insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, lock_by, lock_at, idempotency_key)
             values ('1', 'reserve', '', 'Running', 1, 5, 'other', now() - '1 minute'::interval, 'k')",
    )
    .await;
    let (mut admin, name) = beside(&test).await;
    let allow = |yes| sqlx::AssertSqlSafe(format!("alter database {name} with allow_connections {yes}"));
    sqlx::raw_sql(allow(false)).execute(&mut admin).await.unwrap();
    hang_up(&mut admin, &name).await;
    let late = Db::connect_lazy(&test.url, 5).unwrap();
    let worker = Worker::on(late, RESERVE, 1, handler(|_| async { Ok(()) }), settings);
    let away = Instant::now();
    until("it missed some beats", async || away.elapsed() > settings.heartbeat * 5).await;
    sqlx::raw_sql(allow(true)).execute(&mut admin).await.unwrap();
    until("it has beaten more than once", async || {
        let beaten = "select count(*) from apalis.workers where last_seen > started_at + '200 ms'::interval";
        sqlx::query_scalar(beaten).fetch_one(test.db.pool()).await.unwrap_or(0_i64) == 1
    })
    .await;
    assert_eq!(row(&test.db, "k").await.status, "Running");
    until("it is judged in the end", async || row(&test.db, "k").await.status == "Done").await;
    worker.stop().await;
}

#[test]
fn a_handler_that_blocks_its_whole_runtime_does_not_make_its_worker_look_dead() {
    let settings = Settings { dead_after: Duration::from_secs(4), ..fast() };
    let observer = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let test = observer.block_on(database());
    observer.block_on(put(&test.db, RESERVE, "k", "k", 5));
    let runs = Runs::default();
    let (say_started, started_rx) = std::sync::mpsc::channel();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let url = test.url.clone();
    let blocked = std::thread::spawn(move || {
        // One thread for everything, and the handler takes it away.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let run = {
                let held = Arc::new(held);
                handler(move |_| {
                    let (say_started, held) = (say_started.clone(), held.clone());
                    async move {
                        say_started.send(()).unwrap();
                        held.lock().unwrap().recv().unwrap();
                        Ok(())
                    }
                })
            };
            let db = Db::connect(&url, 5).await.unwrap();
            let worker = Worker::start(&url, RESERVE, 1, run, settings).await;
            until("done", async || row(&db, "k").await.status == "Done").await;
            worker.stop().await;
        });
    });
    started_rx.recv().unwrap();
    observer.block_on(async {
        let other = Worker::start(&test.url, RESERVE, 1, gated(&runs, &Arc::new(Semaphore::new(9))), settings).await;
        let since = Instant::now();
        until("long enough to be taken for dead", async || since.elapsed() > settings.dead_after * 3 / 2).await;
        let_go.send(()).unwrap();
        until("done", async || row(&test.db, "k").await.status == "Done").await;
        other.stop().await;
    });
    blocked.join().unwrap();
    assert!(runs.lock().unwrap().is_empty(), "it ran elsewhere too");
    assert_eq!(observer.block_on(row(&test.db, "k")).attempts, 1);
}

#[tokio::test]
async fn jobs_that_use_up_every_connection_do_not_keep_the_queue_from_getting_on() {
    let test = database().await;
    put(&test.db, RESERVE, "k", "k", 5).await;
    let db = Db::connect(&test.url, 1).await.unwrap();
    let held = db.pool().acquire().await.unwrap();
    let worker = Worker::on(db.clone(), RESERVE, 1, handler(|_| async { Ok(()) }), fast());
    until("done", async || row(&test.db, "k").await.status == "Done").await;
    worker.stop().await;
    drop(held);
}
