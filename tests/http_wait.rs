//! `Prefer: wait=N`: woken by the database's notice, bounded in time, and not in the way of an end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onehold::db::{Db, Notices};
use serde_json::json;

use crate::http::{Answer, Web, one_machine, send};
use crate::support::{database, eventually};

const UNTIL: Duration = Duration::from_secs(20);
/// How often a waiting request looks by itself.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Begins a placement that waits, and gives it once its order is there and it has looked at it.
async fn waiting(web: &Arc<Web>, key: &str, seconds: &str) -> (tokio::task::JoinHandle<Answer>, sqlx::types::Uuid) {
    let task = {
        let request = web.order(key, &one_machine()).header("Prefer", format!("wait={seconds}"));
        tokio::spawn(send(request))
    };
    let id = async || -> Option<sqlx::types::Uuid> {
        sqlx::query_scalar("select id from onehold.orders where idempotency_key = $1")
            .bind(key)
            .fetch_optional(web.db.pool())
            .await
            .unwrap()
    };
    eventually(UNTIL, async || id().await.is_some()).await;
    (task, id().await.unwrap())
}

async fn refuse(web: &Web, id: sqlx::types::Uuid) {
    web.run(&format!(
        "update onehold.orders set status = 'refused', refusal = '{{\"kind\": \"unavailable\"}}' where id = '{id}'"
    ))
    .await;
}

#[tokio::test]
async fn a_waiting_request_is_woken_by_the_notice_of_its_own_order() {
    let web = Arc::new(Web::start().await);
    let began = Instant::now();
    let (task, id) = waiting(&web, "k", "20").await;
    let (other, _) = waiting(&web, "other", "3").await;
    refuse(&web, id).await;
    web.db.notifier().decided(id);
    let answer = task.await.unwrap();
    assert!(began.elapsed() < LOOK_EVERY, "woken, not come back by itself: {:?}", began.elapsed());
    // Accepted is what the placement was, whatever has been decided since.
    assert_eq!((answer.status.as_u16(), &answer.body["status"]), (202, &json!("refused")));
    assert_eq!(answer.headers["preference-applied"], "wait=20");
    let other = other.await.unwrap();
    assert_eq!((other.status.as_u16(), &other.body["status"]), (202, &json!("placed")));
}

#[tokio::test]
async fn a_lost_notice_costs_some_seconds_only() {
    let web = Arc::new(Web::start().await);
    let (task, id) = waiting(&web, "k", "20").await;
    refuse(&web, id).await;
    let began = Instant::now();
    assert_eq!(task.await.unwrap().body["status"], "refused");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_wait_ends_after_its_seconds() {
    let web = Arc::new(Web::start().await);
    let began = Instant::now();
    let (task, _) = waiting(&web, "k", "1").await;
    let answer = task.await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!((answer.status.as_u16(), &answer.body["status"]), (202, &json!("placed")));
    assert_eq!(answer.headers["preference-applied"], "wait=1");
    // A replay may wait as well.
    let replay = send(web.order("k", &one_machine()).header("Prefer", "wait=0")).await;
    assert_eq!((replay.status.as_u16(), &replay.body["status"]), (200, &json!("placed")));
    assert_eq!(replay.headers["preference-applied"], "wait=0");
}

#[tokio::test]
async fn a_longer_wait_than_30_seconds_is_30_and_a_decided_order_needs_none() {
    let web = Arc::new(Web::start().await);
    let (task, id) = waiting(&web, "k", "99").await;
    refuse(&web, id).await;
    web.db.notifier().decided(id);
    assert_eq!(task.await.unwrap().headers["preference-applied"], "wait=30");
    let began = Instant::now();
    let replay = send(web.order("k", &one_machine()).header("Prefer", "wait=30")).await;
    assert_eq!((replay.status.as_u16(), &replay.body["status"]), (200, &json!("refused")));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_waiting_request_is_answered_when_the_process_ends() {
    let web = Arc::new(Web::start().await);
    let (task, _) = waiting(&web, "k", "30").await;
    let began = Instant::now();
    web.shutdown.cancel();
    let answer = task.await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body["status"]), (202, &json!("placed")));
    eventually(UNTIL, async || web.serving.is_finished()).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Waiting needs no connection: more requests wait than the pool has connections.
#[tokio::test]
async fn waiting_requests_keep_no_connection() {
    let url = database().await.url;
    let db = Db::connect(&url, 2).await.unwrap();
    let web = Arc::new(Web::on(db.clone(), Notices::start(&db)).await);
    let mut tasks = Vec::new();
    for n in 0..6 {
        tasks.push(waiting(&web, &n.to_string(), "20").await);
    }
    for (_, id) in &tasks {
        refuse(&web, *id).await;
        web.db.notifier().decided(*id);
    }
    for (task, _) in tasks {
        assert_eq!(task.await.unwrap().body["status"], "refused");
    }
}
