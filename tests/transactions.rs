//! The transaction wrapper (cases T4, T5).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onehold::db::{Db, Fault, Tx, Verdict};
use sqlx::Row as _;

use crate::support::database;

#[tokio::test]
async fn a_transaction_that_answers_rollback_keeps_nothing() {
    let test = database().await;
    let db = test.db.clone();
    let answer = tokio::spawn(async move {
        db.transaction("test", |mut tx| {
            Box::pin(async move {
                sqlx::query("insert into onehold.shops (name) values ('gone')").execute(&mut *tx).await?;
                Ok(Verdict::Rollback(7))
            })
        })
        .await
    })
    .await
    .unwrap()
    .unwrap();
    assert_eq!(answer, 7);
    let left: i64 = sqlx::query_scalar("select count(*) from onehold.shops where name = 'gone'")
        .fetch_one(test.db.pool())
        .await
        .unwrap();
    assert_eq!(left, 0);
}

/// Case T4.
#[tokio::test]
async fn an_injected_serialization_failure_is_run_again_and_a_bound_ends_it() {
    let test = database().await;
    let runs = AtomicU32::new(0);
    let answer = test.db.transaction("test", |tx| Box::pin(fail_until(tx, &runs, 3, "40001"))).await.unwrap();
    assert_eq!(answer, 3);

    let runs = AtomicU32::new(0);
    let fault = test.db.transaction("test", |tx| Box::pin(fail_until(tx, &runs, u32::MAX, "40P01"))).await.unwrap_err();
    assert_eq!(fault.sqlstate().as_deref(), Some("40P01"));
    assert_eq!(runs.load(Ordering::Relaxed), 6);
}

async fn fail_until(mut tx: Tx<'_, '_>, runs: &AtomicU32, works: u32, state: &str) -> Result<Verdict<u32>, Fault> {
    let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
    if run < works {
        let raise = format!("do $$ begin raise exception 'injected' using errcode = '{state}'; end $$");
        sqlx::raw_sql(sqlx::AssertSqlSafe(raise)).execute(&mut *tx).await?;
    }
    Ok(Verdict::Commit(run))
}

/// Case T5: a pool of one connection, and callers that give up at every point of a transaction's begin.
#[tokio::test]
async fn a_caller_that_gives_up_during_begin_leaves_no_open_transaction_behind() {
    let test = database().await;
    let db = Db::connect(&test.url, 1).await.unwrap();
    for give_up_after in [0, 20, 50, 100, 200, 400, 800, 1600] {
        let work = db.transaction("test", |_| Box::pin(async { Ok(Verdict::Commit(())) }));
        let _ = tokio::time::timeout(Duration::from_micros(give_up_after), work).await;
        let outside: bool = sqlx::raw_sql("select now() = statement_timestamp()")
            .fetch_one(db.pool())
            .await
            .unwrap()
            .try_get(0)
            .unwrap();
        assert!(outside, "given up after {give_up_after} µs");
    }
}

/// The check at a connection's return: one that is left inside a transaction is thrown away, and a clean
/// one is kept.
#[tokio::test]
async fn a_connection_left_inside_a_transaction_is_thrown_away_and_a_clean_one_is_kept() {
    let test = database().await;
    let db = Db::connect(&test.url, 1).await.unwrap();
    let pid = async || -> i32 { sqlx::query_scalar("select pg_backend_pid()").fetch_one(db.pool()).await.unwrap() };
    let first = pid().await;
    assert_eq!(pid().await, first, "a clean connection is used again");
    sqlx::raw_sql("begin").execute(db.pool()).await.unwrap();
    let second = pid().await;
    assert_ne!(second, first, "an open transaction");
    sqlx::raw_sql("begin; select 1/0").execute(db.pool()).await.unwrap_err();
    assert_ne!(pid().await, second, "a failed transaction");
}

/// Case T6: the server ends a session that sits idle in a transaction, and the pool goes on.
#[tokio::test]
async fn a_session_that_sits_idle_in_a_transaction_is_ended_by_the_server_and_the_pool_goes_on() {
    let test = database().await;
    let db = Db::connect(&test.url, 1).await.unwrap();
    let mut idle = db.pool().acquire().await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *idle).await.unwrap();
    sqlx::raw_sql("set idle_in_transaction_session_timeout = '100ms'; begin").execute(&mut *idle).await.unwrap();
    crate::support::eventually(Duration::from_secs(10), || async {
        let there = "select count(*) from pg_stat_activity where pid = $1";
        sqlx::query_scalar::<_, i64>(there).bind(pid).fetch_one(test.db.pool()).await.unwrap() == 0
    })
    .await;
    drop(idle);
    let other: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(db.pool()).await.unwrap();
    assert_ne!(other, pid);
}

/// Every connection carries the limits by which the server does so.
#[tokio::test]
async fn every_connection_carries_the_time_limits() {
    let test = database().await;
    let limits: (String, String, String) = sqlx::query_as(
        "select current_setting('statement_timeout'), current_setting('lock_timeout'),
                current_setting('idle_in_transaction_session_timeout')",
    )
    .fetch_one(test.db.pool())
    .await
    .unwrap();
    assert_eq!(limits, ("10s".to_owned(), "5s".to_owned(), "10s".to_owned()));
}
