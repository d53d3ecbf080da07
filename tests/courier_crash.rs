//! A worker that is killed with kill -9 at each step of a delivery loses nothing; one that is asked to end finishes
//! what is on its way.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::courier::{deliveries, endpoint, pause_is_over};
use crate::receiver::{Receiver, Reply, ok};
use crate::scene::Scene;
use crate::support::eventually;
use crate::support::process::Running;

const LIMIT: Duration = Duration::from_secs(60);

fn worker(scene: &Scene) -> Running {
    Running::onehold(&["worker"], [("DATABASE_URL", scene.test.url.clone())])
}

async fn killed(mut worker: Running) {
    worker.signal(Signal::SIGKILL);
    worker.wait(LIMIT).await;
}

/// Ends what waits for a lock: the server would go on with a statement that it has, whoever sent it.
async fn and_its_session(scene: &Scene) {
    let waiting = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    scene.run(&format!("select pg_terminate_backend(pid) {waiting}")).await;
    eventually(LIMIT, || async { scene.number(&format!("select count(*) {waiting}")).await == 0 }).await;
}

/// A transaction of its own that stands in somebody's way until it is dropped.
pub(crate) async fn in_the_way(scene: &Scene, of: &str) -> PgConnection {
    let mut conn = PgConnection::connect(&scene.test.url).await.unwrap();
    let statements = format!("begin; {of}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut conn).await.unwrap();
    conn
}

/// Waits until somebody waits for a lock in a statement that says `what`.
pub(crate) async fn until_someone_waits_in(scene: &Scene, what: &str) {
    let query = format!(
        "select count(*) from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock' and query like '%{what}%'"
    );
    eventually(LIMIT, || async { scene.number(&query).await > 0 }).await;
}

/// The types of what has arrived, in that order.
fn kinds(receiver: &mut Receiver) -> Vec<String> {
    receiver.rest().iter().map(crate::receiver::Received::kind).collect()
}

/// An order that was reserved and cancelled, with an endpoint to be told.
async fn two_to_tell(receiver: &Receiver) -> (Scene, sqlx::types::Uuid) {
    let scene = Scene::with_machines(1).await;
    let (endpoint, _) = endpoint(&scene, receiver).await;
    let id = scene.reserved("a").await;
    onehold::orders::cancel(&scene.db, 1, id, "api:test", None).await.unwrap();
    (scene, endpoint)
}

async fn delivered_by_another(scene: &Scene, endpoint: sqlx::types::Uuid) {
    // What the killed one had taken is free when its lease is over: here at once.
    pause_is_over(scene).await;
    let mut another = worker(scene);
    eventually(LIMIT, || async { deliveries(scene, endpoint, "delivered").await.len() == 2 }).await;
    another.signal(Signal::SIGTERM);
    assert!(another.wait(LIMIT).await.success());
}

#[tokio::test]
async fn killed_while_it_takes_a_delivery() {
    let mut receiver = Receiver::start(|_| ok()).await;
    let (scene, endpoint) = two_to_tell(&receiver).await;
    let obstacle = in_the_way(&scene, "lock table onehold.outbound_events in access exclusive mode").await;
    let victim = worker(&scene);
    until_someone_waits_in(&scene, "take_deliveries").await;
    killed(victim).await;
    and_its_session(&scene).await;
    drop(obstacle);
    assert_eq!(kinds(&mut receiver), [""; 0]);
    delivered_by_another(&scene, endpoint).await;
    assert_eq!(kinds(&mut receiver), ["order.reserved", "order.cancelled"]);
}

#[tokio::test]
async fn killed_while_it_sends() {
    let mut receiver = Receiver::start(|_| Reply::Hang).await;
    let (scene, endpoint) = two_to_tell(&receiver).await;
    let victim = worker(&scene);
    assert_eq!(receiver.next().await.kind(), "order.reserved");
    killed(victim).await;
    receiver.now(|_| ok());
    let leased = "select count(*) from onehold.deliveries where lease is not null and due_at > clock_timestamp()";
    assert_eq!(scene.number(leased).await, 1, "it is taken for 45 seconds");
    delivered_by_another(&scene, endpoint).await;
    assert_eq!(kinds(&mut receiver), ["order.reserved", "order.cancelled"]);
}

#[tokio::test]
async fn killed_after_the_receiver_took_it_and_before_that_was_written_down() {
    let mut receiver = Receiver::start(|_| ok()).await;
    let (scene, endpoint) = two_to_tell(&receiver).await;
    let obstacle = in_the_way(&scene, "lock table onehold.delivery_attempts in access exclusive mode").await;
    let victim = worker(&scene);
    let first = receiver.next().await;
    until_someone_waits_in(&scene, "end_attempt").await;
    killed(victim).await;
    and_its_session(&scene).await;
    drop(obstacle);
    assert_eq!(deliveries(&scene, endpoint, "pending").await.len(), 2);
    delivered_by_another(&scene, endpoint).await;
    let again = receiver.rest();
    assert_eq!(again[0].id, first.id, "the receiver can see that it is the same");
    assert_eq!(again.iter().map(|r| r.kind()).collect::<Vec<_>>(), ["order.reserved", "order.cancelled"]);
}

#[tokio::test]
async fn asked_to_end_it_finishes_what_is_on_its_way_and_takes_nothing_more() {
    let (shutdown, go) = (CancellationToken::new(), Arc::new(Notify::new()));
    let answers = go.clone();
    let mut receiver = Receiver::start(move |_| Reply::When(answers.clone())).await;
    let (scene, endpoint) = two_to_tell(&receiver).await;
    let mut courier = onehold::courier::start(scene.db.clone(), shutdown.clone(), LIMIT).unwrap();
    assert_eq!(receiver.next().await.kind(), "order.reserved");
    shutdown.cancel();
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut courier).await.is_err(), "it waits for the answer");
    go.notify_one();
    tokio::time::timeout(LIMIT, courier).await.unwrap().unwrap();
    assert_eq!(deliveries(&scene, endpoint, "delivered").await.len(), 1, "it was written down");
    assert_eq!(kinds(&mut receiver), [""; 0]);
}

#[tokio::test]
async fn a_worker_process_that_is_asked_to_end_has_written_down_what_was_on_its_way() {
    let go = Arc::new(Notify::new());
    let answers = go.clone();
    let mut receiver = Receiver::start(move |_| Reply::When(answers.clone())).await;
    let (scene, endpoint) = two_to_tell(&receiver).await;
    let mut ending = worker(&scene);
    assert_eq!(receiver.next().await.kind(), "order.reserved");
    ending.signal(Signal::SIGTERM);
    go.notify_one();
    assert!(ending.wait(LIMIT).await.success());
    assert_eq!(deliveries(&scene, endpoint, "delivered").await.len(), 1);
}

#[tokio::test]
async fn a_courier_that_was_taken_for_lost_writes_over_nothing() {
    let receiver = Receiver::start(|_| ok()).await;
    let (scene, endpoint) = two_to_tell(&receiver).await;
    let take = "select lease from onehold.take_deliveries(1, $1, 10, interval '45 seconds')";
    let taken = async || -> Vec<sqlx::types::Uuid> {
        sqlx::query_scalar(take).bind(endpoint).fetch_all(scene.db.pool()).await.unwrap()
    };
    let end = async |lease: sqlx::types::Uuid, state: &str| -> bool {
        let ending = "select onehold.end_attempt(1, $1, event_id, $2, $3, interval '1 hour', 500, 'no', 1)
                      from onehold.deliveries order by position limit 1";
        sqlx::query_scalar(ending).bind(endpoint).bind(lease).bind(state).fetch_one(scene.db.pool()).await.unwrap()
    };
    let lost = taken().await;
    assert_eq!(lost.len(), 1, "of an order one is on its way");
    assert!(taken().await.is_empty(), "and only once");
    pause_is_over(&scene).await;
    let again = taken().await;
    assert!(!end(lost[0], "given_up").await);
    assert!(end(again[0], "delivered").await);
    assert!(!end(lost[0], "pending").await);
    assert_eq!(deliveries(&scene, endpoint, "delivered").await[0].attempts.as_array().unwrap().len(), 3);
    assert_eq!(taken().await.len(), 1, "the next is woken");
}
