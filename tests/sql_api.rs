//! Placing and cancelling from SQL, inside a web app's own transaction.

use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::scene::Scene;

async fn place(scene: &Scene, shop: &str, key: &str, body: &Value) -> Result<Uuid, sqlx::Error> {
    sqlx::query_scalar("select onehold.place_order($1, $2, $3)")
        .bind(shop)
        .bind(key)
        .bind(body)
        .fetch_one(scene.db.pool())
        .await
}

/// The SQLSTATE and the code that a refusal begins with.
fn refused(result: Result<Uuid, sqlx::Error>) -> (String, String) {
    let error = result.expect_err("the database must refuse this");
    let error = error.as_database_error().unwrap();
    let code = error.message().split(':').next().unwrap().to_owned();
    (error.code().unwrap().into_owned(), code)
}

#[tokio::test]
async fn an_order_placed_in_a_transaction_that_rolls_back_leaves_neither_order_nor_job() {
    let scene = Scene::with_machines(1).await;
    let body = json!({"lines": [{"asset": {"category": "box"}}]});
    let statement = format!("begin; select onehold.place_order('main', 'k', '{body}'); rollback");
    scene.run(&statement).await;
    assert_eq!(scene.number("select count(*) from onehold.orders").await, 0);
    assert_eq!(scene.number("select count(*) from apalis.jobs").await, 0);

    let id = place(&scene, "main", "k", &body).await.unwrap();
    assert_eq!(place(&scene, "main", "k", &body).await.unwrap(), id, "once per key");
    assert_eq!(scene.number("select count(*) from apalis.jobs").await, 1);
    scene.reserve(id).await;
    assert_eq!(scene.assets(id, "held").await, ["m-01"]);
}

#[tokio::test]
async fn names_are_cleaned_and_nulls_in_conditions_are_values() {
    let scene = Scene::with_machines(1).await;
    scene.run("update onehold.assets set attributes = '{\"raid\": null}', location = 'Köln'").await;
    let body = json!({"lines": [{"asset": {"category": " box\u{a0}", "locations": ["Ko\u{308}ln "], "vendor": "Dell ",
                                           "attributes": {"raid": {"eq": null}}}, "quantity": 1e0}]});
    let id = place(&scene, "main", "k", &body).await.unwrap();
    scene.reserve(id).await;
    assert_eq!(scene.assets(id, "held").await, ["m-01"]);
}

#[tokio::test]
async fn what_http_refuses_sql_refuses_with_the_same_codes_and_writes_nothing() {
    let scene = Scene::with_machines(1).await;
    let good = json!({"lines": [{"asset": {"category": "box"}}]});
    let state = |s: &str, c: &str| (s.to_owned(), c.to_owned());
    assert_eq!(refused(place(&scene, "nobody", "k", &good).await), state("OH404", "not_found"));
    assert_eq!(refused(place(&scene, "main", "", &good).await), state("OH400", "invalid_idempotency_key"));
    assert_eq!(refused(place(&scene, "main", "é", &good).await), state("OH400", "invalid_idempotency_key"));
    assert_eq!(scene.number("select count(*) from onehold.orders").await, 0);

    place(&scene, "main", "k", &good).await.unwrap();
    let other = json!({"lines": [{"asset": {"category": "other"}}]});
    assert_eq!(refused(place(&scene, "main", "k", &other).await), state("OH422", "idempotency_key_reused"));
    assert_eq!(scene.number("select count(*) from onehold.orders").await, 1);
}

#[tokio::test]
async fn a_cancellation_from_sql_is_that_of_the_api() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    let cancel = |id: Uuid| format!("select onehold.cancel_order('main', '{id}', 'fraud')");
    scene.run(&cancel(id)).await;
    scene.run(&cancel(id)).await;
    assert_eq!(scene.history(id).await, ["placed", "reserved", "cancelled"]);
    let sold = scene.reserved("sold").await;
    scene.pay(sold, "evt").await;
    let error = scene.try_run(&cancel(sold)).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "OH409");
    let error = scene.try_run(&cancel(Uuid::nil())).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "OH404");
}
