//! The transaction wrapper (cases T4, T5).

use onehold::db::{Fault, Verdict};

use crate::support::database;

#[tokio::test]
async fn a_transaction_that_answers_rollback_keeps_nothing() {
    let test = database().await;
    let db = test.db.clone();
    let answer = tokio::spawn(async move {
        db.transaction("test", async |tx| {
            sqlx::query("insert into onehold.shops (name) values ('gone')").execute(&mut *tx).await?;
            Ok(Verdict::Rollback(7))
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

#[tokio::test]
async fn an_injected_serialization_failure_is_run_again_and_a_bound_ends_it() {
    let test = database().await;
    let mut runs = 0;
    let answer = test
        .db
        .transaction("test", async |tx| {
            runs += 1;
            if runs < 3 {
                sqlx::query("do $$ begin raise exception 'injected' using errcode = '40001'; end $$")
                    .execute(&mut *tx)
                    .await?;
            }
            Ok(Verdict::Commit(runs))
        })
        .await
        .unwrap();
    assert_eq!(answer, 3);

    let mut runs = 0;
    let fault = test
        .db
        .transaction("test", async |tx| {
            runs += 1;
            sqlx::query("do $$ begin raise exception 'injected' using errcode = '40P01'; end $$")
                .execute(&mut *tx)
                .await?;
            Ok(Verdict::Commit(()))
        })
        .await
        .unwrap_err();
    assert!(matches!(fault, Fault::Database(_)));
    assert_eq!(runs, 6);
}
