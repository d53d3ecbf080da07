//! Whole processes that are killed, asked to end, or lose their database (cases Q1, Q3, Q4, W9 and A7 with
//! the real executable).

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use onehold::db::Db;
use onehold::db::server::{Server, ServerSettings};
use onehold::queue;
use sqlx::types::Uuid;

use crate::scene::Scene;
use crate::support::process::Running;
use crate::support::{Database, eventually, pg_bin, room};

fn worker(url: &str) -> Running {
    Running::onehold(&["worker"], [("DATABASE_URL", url.to_owned()), ("RUST_LOG", "warn".to_owned())])
}

async fn status(scene: &Scene, id: Uuid) -> String {
    scene.order(id).await.status.code().to_owned()
}

/// A rival who stands in the job's way: the order's row stays locked until he is dropped.
async fn stand_in_the_way(scene: &Scene, id: Uuid) -> sqlx::Transaction<'static, sqlx::Postgres> {
    #[allow(clippy::disallowed_methods, reason = "a rival, not the product")]
    let mut rival = scene.db.pool().begin().await.unwrap();
    sqlx::query("select from onehold.orders where id = $1 for update").bind(id).execute(&mut *rival).await.unwrap();
    rival
}

async fn until_the_job_waits(scene: &Scene) {
    eventually(Duration::from_secs(10), || async {
        let waiting = "select count(*) from pg_stat_activity
                       where datname = current_database() and wait_event_type = 'Lock'";
        scene.number(waiting).await == 1
    })
    .await;
}

/// Case Q1: the job of a worker that is killed in the middle of it runs again within 15 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_of_a_killed_worker_runs_again_within_15_seconds_and_its_attempts_count() {
    let scene = Scene::with_machines(2).await;
    let id = scene.place_one("k").await;
    let rival = stand_in_the_way(&scene, id).await;
    let mut victim = worker(&scene.test.url);
    until_the_job_waits(&scene).await;
    victim.signal(Signal::SIGKILL);
    victim.wait(Duration::from_secs(5)).await;
    let killed = Instant::now();
    rival.rollback().await.unwrap();
    let _other = worker(&scene.test.url);
    eventually(Duration::from_secs(15), || async { status(&scene, id).await == "reserved" }).await;
    assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    assert_eq!(scene.number("select attempts::bigint from apalis.jobs where job_type = 'reserve'").await, 2);
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 1);
    scene.verify().await;
}

/// Case Q4: SIGTERM in the middle of a job lets it finish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_asked_to_end_finishes_its_job_first() {
    let scene = Scene::with_machines(1).await;
    let id = scene.place_one("k").await;
    let rival = stand_in_the_way(&scene, id).await;
    let mut asked = worker(&scene.test.url);
    until_the_job_waits(&scene).await;
    asked.signal(Signal::SIGTERM);
    // It no longer takes new work: this one is for the next worker.
    let next = scene.place_one("next").await;
    rival.rollback().await.unwrap();
    assert!(asked.wait(Duration::from_secs(10)).await.success());
    assert_eq!(status(&scene, id).await, "reserved");
    assert_eq!(status(&scene, next).await, "placed");
    assert_eq!(scene.number("select count(*) from apalis.jobs where status = 'Done'").await, 1);
    assert_eq!(scene.number("select count(*) from apalis.jobs where status in ('Queued', 'Running')").await, 0);
}

/// Case Q4: what does not finish within the grace period goes back without being charged for the attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_outlasts_the_grace_goes_back_to_its_queue_uncharged() {
    let scene = Scene::with_machines(1).await;
    let id = scene.place_one("k").await;
    let rival = stand_in_the_way(&scene, id).await;
    let env = [
        ("DATABASE_URL", scene.test.url.clone()),
        ("RUST_LOG", "warn".to_owned()),
        ("ONEHOLD_GRACE_SECONDS", "0".to_owned()),
    ];
    let mut asked = Running::onehold(&["worker", "reserve"], env);
    until_the_job_waits(&scene).await;
    asked.signal(Signal::SIGTERM);
    asked.wait(Duration::from_secs(10)).await;
    let back = "select count(*) from apalis.jobs where status = 'Pending' and attempts = 0 and lock_by is null";
    assert_eq!(scene.number(back).await, 1);
    rival.rollback().await.unwrap();
    let _other = worker(&scene.test.url);
    eventually(Duration::from_secs(10), || async { status(&scene, id).await == "reserved" }).await;
    scene.verify().await;
}

/// Case Q3: the database is restarted under load; the worker reconnects by itself, and every order that was
/// accepted is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_survives_a_restart_of_its_database_and_no_accepted_order_is_lost() {
    let room = room();
    let start = async || {
        let settings = ServerSettings { data_dir: room.path().join("data"), pg_bin: pg_bin(), durable: true };
        Server::start(settings).await.unwrap()
    };
    let server = start().await;
    let url = server.url();
    let db = Db::connect(&url, 5).await.unwrap();
    onehold::db::migrate(&db, queue::migrations()).await.unwrap();
    let scene = Scene { test: Database { db: db.clone(), url: url.clone() }, db };
    scene.add_machines(60).await;
    let mut worker = worker(&url);
    let mut accepted = Vec::new();
    for n in 0..20 {
        accepted.push(scene.place_one(&format!("before-{n}")).await);
    }
    server.stop().await.unwrap();
    // A client that goes on placing: an order that was refused for want of a database was not accepted.
    let body = crate::scene::one_machine();
    let place = async |key: &str| onehold::orders::place(&scene.db, 1, key, &body, &body["lines"], "api:test").await;
    assert!(place("while-down").await.is_err());
    let server = start().await;
    eventually(Duration::from_secs(20), || async { place("again").await.is_ok() }).await;
    for n in 0..20 {
        accepted.push(scene.place_one(&format!("after-{n}")).await);
    }
    for id in accepted {
        eventually(Duration::from_secs(20), || async { status(&scene, id).await == "reserved" }).await;
    }
    assert_eq!(scene.number("select count(*) from onehold.orders where idempotency_key = 'while-down'").await, 0);
    scene.verify().await;
    worker.signal(Signal::SIGTERM);
    assert!(worker.wait(Duration::from_secs(15)).await.success(), "the same process, all the time");
    server.stop().await.unwrap();
}

/// Invariant 6: workers are killed at any moment, again and again, while orders come in and are paid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_whenever_every_order_is_answered_and_every_payment_applied() {
    let scene = Scene::with_machines(30).await;
    let mut ids = Vec::new();
    for round in 0_u64..4 {
        let mut worker = worker(&scene.test.url);
        for n in 0..10 {
            let id = scene.place_one(&format!("k-{round}-{n}")).await;
            scene.keep_event(&id.to_string(), &format!("evt-{round}-{n}"), "succeeded").await;
            ids.push(id);
        }
        scene.run("select pg_notify('onehold_jobs', 'reserve')").await;
        // Each round a little later: at the start, among the claims, among the commits, near the end.
        let decided = "select count(*) from onehold.orders where status <> 'placed'";
        let target = i64::try_from(round * 12).unwrap();
        let moment = async || scene.number(decided).await >= target.min(i64::try_from(ids.len()).unwrap());
        eventually(Duration::from_secs(30), || async { moment().await }).await;
        worker.signal(Signal::SIGKILL);
        worker.wait(Duration::from_secs(5)).await;
    }
    let _last = worker(&scene.test.url);
    // A payment whose order was decided while its job had no worker is found by the housekeeping.
    scene.run("update onehold.payment_events set received_at = received_at - interval '1 minute'").await;
    onehold::sweep::requeue(&scene.db).await.unwrap();
    eventually(Duration::from_secs(40), || async {
        onehold::sweep::requeue(&scene.db).await.unwrap();
        scene.number("select count(*) from onehold.orders where status = 'placed'").await == 0
            && scene.number("select count(*) from onehold.payment_events where state = 'pending'").await == 0
    })
    .await;
    assert_eq!(scene.number("select count(*) from onehold.orders where status = 'converted'").await, 30);
    assert_eq!(scene.number("select count(*) from onehold.orders where payment_state = 'refund_due'").await, 10);
    scene.verify().await;
}
