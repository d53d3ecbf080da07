//! Every answer that is no success is a problem: unknown paths, methods that are not there, a database that
//! is down; and the health of the process.

use std::time::{Duration, Instant};

use onehold::db::{Db, Notices};
use reqwest::Method;
use serde_json::json;

use crate::http::{Web, one_machine, send};

#[tokio::test]
async fn an_unknown_path_and_a_method_that_is_not_there_are_problems() {
    let web = Web::start().await;
    for path in ["/", "/v1", "/v1/order", "/v1/orders/", "/v2/orders", "/%ff", "/v1/orders/1/2/3"] {
        assert_eq!(send(web.get(path)).await.code(), (404, "not_found"), "{path}");
    }
    for (method, path, allowed) in [
        (Method::DELETE, "/v1/orders", "GET"),
        (Method::GET, "/v1/availability", "POST"),
        (Method::PUT, "/healthz", "GET"),
        (Method::OPTIONS, "/v1/orders/1/cancel", "POST"),
    ] {
        let answer = send(web.bare(method, path)).await;
        assert_eq!(answer.code(), (405, "method_not_allowed"), "{path}");
        assert!(answer.headers["allow"].to_str().unwrap().contains(allowed), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn every_answer_carries_the_id_under_which_it_is_logged() {
    let web = Web::start().await;
    let mut ids = std::collections::BTreeSet::new();
    for path in ["/healthz", "/nowhere", "/v1/orders"] {
        ids.insert(send(web.get(path)).await.headers["x-request-id"].to_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn health_needs_no_key() {
    let web = Web::start().await;
    assert_eq!(send(web.bare(Method::GET, "/healthz")).await.body, json!({"status": "ok"}));
    assert_eq!(send(web.bare(Method::GET, "/readyz")).await.body, json!({"status": "ready"}));
    web.run("delete from onehold._migrations where version = (select max(version) from onehold._migrations)").await;
    let behind = send(web.bare(Method::GET, "/readyz")).await;
    assert_eq!(behind.code(), (503, "unavailable"));
    assert!(behind.body["detail"].as_str().unwrap().contains("lacks 1 migrations"), "{behind:?}");
    web.run(
        "insert into onehold._migrations (version, description, success, checksum, execution_time)
         values (9999, 'later', true, '', 0)",
    )
    .await;
    let newer = send(web.bare(Method::GET, "/readyz")).await;
    assert!(newer.body["detail"].as_str().unwrap().contains("newer than this binary"), "{newer:?}");
    assert_eq!(send(web.bare(Method::GET, "/healthz")).await.status, 200);
}

/// A database that is down: the process lives, says so, and asks to be asked again.
#[tokio::test]
async fn a_database_that_is_down_is_a_503_and_not_the_end_of_the_process() {
    // Nothing listens there: the port was free, and is so again.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let db = Db::connect_lazy(&format!("postgres://nobody:S3CRET@127.0.0.1:{port}/none"), 2).unwrap();
    let web = Web::on(db.clone(), Notices::start(&db)).await;
    assert_eq!(send(web.bare(Method::GET, "/healthz")).await.status, 200);
    let ready = send(web.bare(Method::GET, "/readyz")).await;
    assert_eq!(ready.code(), (503, "unavailable"));
    let began = Instant::now();
    let order = send(web.order("k", &one_machine())).await;
    assert_eq!(order.code(), (503, "unavailable"));
    assert_eq!(order.headers["retry-after"], "1");
    assert!(began.elapsed() < Duration::from_secs(15));
    for answer in [&ready, &order] {
        let text = answer.body.to_string();
        assert!(!text.contains("S3CRET") && !text.contains("127.0.0.1"), "{text}");
    }
    // What does not need the database is answered all the same.
    assert_eq!(send(web.bare(Method::GET, "/v1/orders")).await.code(), (401, "unauthorized"));
}

/// A lock that is not let go of in time is no mistake of ours, and no reason to give up.
#[tokio::test]
async fn a_database_that_is_busy_is_a_503() {
    let web = Web::start().await;
    let id = web.placed("k").await;
    let mut other = web.db.pool().acquire().await.unwrap();
    let lock = format!("begin; select from onehold.orders where id = '{id}' for update");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut *other).await.unwrap();
    let answer = send(web.post(&format!("/v1/orders/{id}/cancel"))).await;
    assert_eq!(answer.code(), (503, "unavailable"));
    sqlx::raw_sql("rollback").execute(&mut *other).await.unwrap();
    assert_eq!(send(web.post(&format!("/v1/orders/{id}/cancel"))).await.body["status"], "cancelled");
}
