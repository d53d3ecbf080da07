//! The transaction wrapper (cases T4, T5).

use std::sync::atomic::{AtomicU32, Ordering};

use onehold::db::{Fault, Tx, Verdict};

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
