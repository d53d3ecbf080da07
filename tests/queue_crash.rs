//! The queue's own commits wait for no fsync: what a crash of the server may take with it, and what not (case Q8).

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onehold::allocator::{Combiner, Outcome};
use onehold::db::Db;
use onehold::db::server::{Server, ServerSettings};
use onehold::orders::{Placed, Placing};
use onehold::queue::catalogue::{RESERVE, ReserveOrder};
use onehold::queue::decode;
use serde_json::json;
use sqlx::types::Uuid;

use crate::queue_support::{Worker, fast, handler, until};
use crate::support::{pg_bin, room};

const ORDERS: usize = 60;

async fn number(db: &Db, query: &'static str) -> i64 {
    // While the server is away there is no number.
    sqlx::query_scalar(query).fetch_one(db.pool()).await.unwrap_or(-1)
}

fn worker(db: &Db) -> Worker {
    let combiner = Combiner::start(db);
    let reserve = handler(move |delivery| {
        let combiner = combiner.clone();
        async move {
            let job: ReserveOrder = decode(&delivery)?;
            match combiner.run(job.shop, job.order).await? {
                Outcome::Reserved | Outcome::AlreadyDecided => Ok(()),
                other => panic!("{other:?}"),
            }
        }
    });
    Worker::on(db.clone(), RESERVE, 4, reserve, fast())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_among_jobs_loses_no_order_that_was_accepted_and_no_hold_that_was_told() {
    let room = room();
    let settings = ServerSettings { data_dir: room.path().to_owned(), pg_bin: pg_bin(), durable: true };
    let server = Server::start(settings.clone()).await.unwrap();
    let db = Db::connect_with(server.options(), 8).await.unwrap();
    onehold::db::migrate(&db, onehold::queue::migrations()).await.unwrap();
    sqlx::query("select onehold.post_movement(1, 'PSU', 'BER', 1000, 'receipt', 'PO-1', 'test', false)")
        .execute(db.pool())
        .await
        .unwrap();
    let placing = Placing::start(&db);
    let body = json!({"lines": [{"sku": "PSU", "quantity": 1, "locations": null, "split": false}]});
    let mut accepted: Vec<Uuid> = Vec::new();
    for n in 0..ORDERS {
        match placing.place(1, &format!("k{n}"), &body, &body["lines"], "api:test").await.unwrap() {
            Placed::New(id) => accepted.push(id),
            other => panic!("{other:?}"),
        }
    }
    let first = worker(&db);
    let reserved = "select count(*) from onehold.orders where status = 'reserved'";
    until("some are reserved", async || number(&db, reserved).await >= 5).await;
    let told: Vec<Uuid> = sqlx::query_scalar("select id from onehold.orders where status = 'reserved'")
        .fetch_all(db.pool())
        .await
        .unwrap();
    kill(Pid::from_raw(server.pid().unwrap().try_into().unwrap()), Signal::SIGKILL).unwrap();
    first.kill().await;
    drop(server);
    db.pool().close().await;

    let server = Server::start(settings).await.unwrap();
    let db = Db::connect_with(server.options(), 8).await.unwrap();
    let kept: Vec<Uuid> = sqlx::query_scalar("select id from onehold.orders").fetch_all(db.pool()).await.unwrap();
    assert!(accepted.iter().all(|id| kept.contains(id)), "an accepted order is gone");
    let holds: Vec<Uuid> =
        sqlx::query_scalar("select order_id from onehold.reservations").fetch_all(db.pool()).await.unwrap();
    assert!(told.iter().all(|id| holds.contains(id)), "a hold that was read is gone");
    let second = worker(&db);
    until("all are reserved", async || number(&db, reserved).await == 60).await;
    until("their jobs are done", async || {
        number(&db, "select count(*) from apalis.jobs where job_type = 'reserve' and status = 'Done'").await == 60
    })
    .await;
    second.stop().await;
    assert_eq!(number(&db, "select count(*) from onehold.reservations where state = 'held'").await, 60);
    assert_eq!(number(&db, "select count(*) from onehold.order_events where kind = 'reserved'").await, 60);
    tokio::time::timeout(Duration::from_secs(30), server.stop()).await.unwrap().unwrap();
}
