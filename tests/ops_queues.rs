//! What operators do to queues: a pause that every worker obeys, and dead letters (cases P1, P4).

use std::sync::Arc;

use onehold::queue::catalogue::RESERVE;
use tokio::sync::mpsc;

use crate::ops_pages::act;
use crate::ops_sign_in::{page, signed_in};
use crate::queue_support::{Worker, fast, handler, put, row, text, until};
use crate::served::{KEY, Served};
use crate::support::database;

async fn beats(db: &onehold::db::Db) -> Vec<String> {
    sqlx::query_scalar("select last_seen::text from apalis.workers order by id").fetch_all(db.pool()).await.unwrap()
}

#[tokio::test]
async fn a_paused_queue_is_worked_on_by_nobody_until_it_is_resumed() {
    let test = database().await;
    let web = Served::start(&test.db).await;
    let cookie = signed_in(&web, KEY).await;
    let (said, mut heard) = mpsc::unbounded_channel();
    let run = handler(move |d| {
        said.send(text(&d)).unwrap();
        async { Ok(()) }
    });
    let one = Worker::start(&test.url, RESERVE, 2, Arc::clone(&run), fast()).await;
    let two = Worker::start(&test.url, RESERVE, 2, run, fast()).await;
    put(&test.db, RESERVE, "before", "before", 3).await;
    assert_eq!(heard.recv().await.as_deref(), Some("before"));

    assert_eq!(act(&web, &cookie, "/ops/queues/reserve/pause", &[]).await, (303, "/ops/queues".to_owned()));
    // Twice is once.
    assert_eq!(act(&web, &cookie, "/ops/queues/reserve/pause", &[]).await.0, 303);
    put(&test.db, RESERVE, "during", "during", 3).await;
    test.db.notifier().job(RESERVE.name);
    // Both have polled several times since: they poll as often as they beat.
    for _ in 0..5 {
        let before = beats(&test.db).await;
        until("a beat of both", async || beats(&test.db).await.iter().zip(&before).all(|(now, then)| now != then))
            .await;
    }
    assert_eq!(row(&test.db, "during").await.attempts, 0);
    let (_, shown) = page(&web, "/ops/queues", &cookie).await;
    assert!(shown.contains(">paused<") && shown.contains("/ops/queues/reserve/resume"), "{shown}");
    assert!(page(&web, "/ops", &cookie).await.1.contains("The queue reserve is paused."));
    assert!(shown.contains(&format!("<td>{}</td>", env!("CARGO_PKG_VERSION"))), "the release of a worker: {shown}");
    let by: String =
        sqlx::query_scalar("select paused_by from apalis.paused_queues").fetch_one(test.db.pool()).await.unwrap();
    assert_eq!(by, "api:bootstrap");

    assert_eq!(act(&web, &cookie, "/ops/queues/reserve/resume", &[]).await.0, 303);
    assert_eq!(heard.recv().await.as_deref(), Some("during"));
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn dead_letters_are_grouped_by_their_text_and_retried_or_discarded() {
    let test = database().await;
    let web = Served::start(&test.db).await;
    let cookie = signed_in(&web, KEY).await;
    for key in ["a", "b", "c"] {
        put(&test.db, RESERVE, key, r#"{"token": "S3CRET", "order": "<x>"}"#, 3).await;
    }
    sqlx::query(
        "update apalis.jobs set status = 'Killed', attempts = 3, done_at = now(),
                last_result = jsonb_build_object('Err', 'no order ' || gen_random_uuid() || ' in shop 77')",
    )
    .execute(test.db.pool())
    .await
    .unwrap();
    let (_, shown) = page(&web, "/ops/queues", &cookie).await;
    assert_eq!(shown.matches("no order … in shop …").count(), 1, "{shown}");
    assert!(page(&web, "/ops", &cookie).await.1.contains("reserve: 3 dead letters."));
    let id = async |key: &str| -> String {
        sqlx::query_scalar("select id from apalis.jobs where idempotency_key = $1")
            .bind(key)
            .fetch_one(test.db.pool())
            .await
            .unwrap()
    };
    let (a, b) = (id("a").await, id("b").await);
    let (_, job) = page(&web, &format!("/ops/jobs/{a}"), &cookie).await;
    assert!(!job.contains("S3CRET") && job.contains("&lt;x&gt;") && job.contains("3 of 3"), "{job}");

    assert_eq!(act(&web, &cookie, &format!("/ops/jobs/{a}/retry"), &[]).await.0, 303);
    let again = row(&test.db, "a").await;
    assert_eq!((again.status.as_str(), again.attempts, again.ended), ("Pending", 0, false));
    assert_eq!(act(&web, &cookie, &format!("/ops/jobs/{a}/retry"), &[]).await.0, 409, "it is none any more");
    assert_eq!(act(&web, &cookie, &format!("/ops/jobs/{a}/discard"), &[]).await.0, 409);
    assert_eq!(act(&web, &cookie, &format!("/ops/jobs/{b}/discard"), &[]).await.0, 303);
    assert_eq!(page(&web, &format!("/ops/jobs/{b}"), &cookie).await.0, 404);
    assert_eq!(act(&web, &cookie, "/ops/queues/reserve/retry", &[]).await.0, 303);
    assert_eq!(row(&test.db, "c").await.status, "Pending");
}
