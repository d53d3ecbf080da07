//! Placing and cancelling from SQL, inside a web app's own transaction.

use std::collections::BTreeSet;

use onehold::orders::request;
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

/// Every body that HTTP refuses, SQL refuses at the same places; every body that HTTP takes, SQL takes with
/// the same normalised lines.
#[tokio::test]
async fn http_and_sql_check_bodies_alike() {
    let scene = Scene::with_machines(0).await;
    let line = |line: Value| json!({"lines": [line]});
    let asset = |asset: Value| json!({"lines": [{"asset": asset}]});
    let mut bodies = vec![
        json!([]),
        json!("x"),
        json!({}),
        json!({"lines": []}),
        json!({"lines": "x"}),
        json!({"lines": [1, null, {}]}),
        json!({"lines": vec![json!({"sku": "S"}); 101]}),
        json!({"lines": [{"sku": "S"}], "unknown": 1, "a/b~c": 2}),
        json!({"lines": [{"sku": "S"}], "reference": "", "buyer": 7, "hold_seconds": 0, "wait_seconds": 86401,
               "metadata": [], "payment": {"amount": -1, "currency": "eur", "x": 1}}),
        json!({"lines": [{"sku": "S"}], "reference": null, "buyer": null, "metadata": {"a": [1, {"b": null}]},
               "payment": {"amount": 0, "currency": "EUR"}, "hold_seconds": 1e3, "wait_seconds": 0}),
        json!({"lines": [{"sku": "S"}], "payment": {}, "hold_seconds": null, "metadata": null}),
        json!({"lines": [{"sku": "S"}], "reference": "a\nb", "payment": 1}),
        line(json!({"sku": "S", "asset": {"category": "c"}})),
        line(json!({"sku": " S\u{3000}", "split": "yes", "locations": [], "quantity": 10001})),
        line(json!({"sku": "Cafe\u{301}", "split": true, "locations": ["BER ", "FRA"], "quantity": 10000})),
        line(json!({"sku": "", "unknown": true})),
        line(json!({"sku": "a\tb", "locations": ["", 1]})),
        asset(json!("c")),
        asset(json!({})),
        asset(json!({"category": 1, "vendor": null, "locations": "BER", "attributes": []})),
        asset(json!({"category": "x".repeat(201), "vendor": "", "locations": vec!["B"; 101]})),
        asset(json!({"category": "\u{a0}c ", "vendor": "é", "locations": ["BER"], "unknown": 1,
                     "attributes": {"a": {}, "b": 1, "c": {"like": 1}, "d/~": {"in": 1}, "e": {"min": true}}})),
        asset(json!({"category": "c", "attributes": {"a": {"eq": null}, "b": {"in": [1, "x", null]},
                     "c": {"min": 1, "max": "z"}, "d": {"eq": {"k": [1]}}}})),
        asset(json!({"category": "c", "attributes": {"a": {"in": []}, "b": {"in": vec![1; 101]}, "": {"eq": 1}}})),
        asset(json!({"category": "c", "attributes": {"a": {"in": vec![1; 100]}, "": {"eq": 1}, "a\nb": {"eq": 1}}})),
        asset(json!({"category": "c", "attributes": attributes(101)})),
        asset(json!({"category": "c", "attributes": attributes(100)})),
        asset(json!({"category": "c", "attributes": {"é".repeat(201): {"eq": 1}}})),
        asset(json!({"category": "c", "attributes": {"é".repeat(200): {"eq": 1}}})),
    ];
    for bad in [json!(0), json!(-5), json!(2_147_483_648_u64), json!(1.5), json!("2"), json!(null), json!(1e3)] {
        bodies.push(line(json!({"asset": {"category": "c"}, "quantity": bad})));
        bodies.push(line(json!({"sku": "S", "quantity": bad})));
    }
    for body in bodies {
        let by_sql: Vec<String> = sqlx::query_scalar("select pointer from onehold.order_faults($1)")
            .bind(&body)
            .fetch_all(scene.db.pool())
            .await
            .unwrap();
        let by_sql: BTreeSet<_> = by_sql.iter().map(|pointer| at_most_to_the_attribute(pointer)).collect();
        match request::check(&body) {
            Ok(lines) => {
                assert!(by_sql.is_empty(), "{body}: {by_sql:?}");
                let cleaned: Value = sqlx::query_scalar("select onehold.clean_lines($1)")
                    .bind(&body["lines"])
                    .fetch_one(scene.db.pool())
                    .await
                    .unwrap();
                assert_eq!(cleaned, lines, "{body}");
            }
            Err(faults) => {
                let by_http: BTreeSet<_> = faults.iter().map(|f| at_most_to_the_attribute(&f.pointer)).collect();
                assert_eq!(by_sql, by_http, "{body}");
            }
        }
    }
}

fn attributes(many: usize) -> Value {
    (0..many).map(|n| (format!("a{n}"), json!({"eq": n}))).collect::<serde_json::Map<_, _>>().into()
}

/// What the workers could not read back is not stored: neither order nor job. The limits are HTTP's.
#[tokio::test]
async fn a_body_that_no_worker_could_read_is_refused_and_its_neighbour_is_not() {
    let scene = Scene::with_machines(1).await;
    let body = |metadata: &str| {
        let lines = r#"[{"asset": {"category": "box"}}]"#;
        format!(r#"{{"lines": {lines}, "metadata": {metadata}}}"#)
    };
    // The body and its metadata are two levels.
    let nested = |levels: usize| format!(r#"{{"a": {}{}}}"#, "[".repeat(levels - 2), "]".repeat(levels - 2));
    let text = |length: usize| format!(r#"{{"a": "{}"}}"#, "x".repeat(length));
    let around = body(&text(0)).len();
    let bad = [
        r#"{"a": 1e400}"#.to_owned(),
        r#"{"a": [{"b": -1e309}]}"#.to_owned(),
        nested(65),
        nested(200),
        text((1 << 20) + 1 - around),
    ];
    let place = async |key: String, text: String| {
        let place = sqlx::query_scalar::<_, Uuid>("select onehold.place_order('main', $1, $2::text::jsonb)");
        place.bind(key).bind(text).fetch_one(scene.db.pool()).await
    };
    for (n, metadata) in bad.iter().enumerate() {
        let answer = place(format!("bad{n}"), body(metadata)).await;
        assert_eq!(refused(answer), ("OH422".to_owned(), "invalid_body".to_owned()), "{metadata:.40}");
    }
    assert_eq!(scene.number("select count(*) from onehold.orders").await, 0);
    assert_eq!(scene.number("select count(*) from apalis.jobs").await, 0);
    for (n, metadata) in [r#"{"a": -1.7e308}"#.to_owned(), nested(64), text((1 << 20) - around)].iter().enumerate() {
        assert!(onehold::body::parse(body(metadata).as_bytes()).is_ok(), "HTTP takes it: {metadata:.40}");
        let id = place(format!("good{n}"), body(metadata)).await.unwrap();
        scene.order(id).await;
    }
    assert!(onehold::body::parse(body(&nested(65)).as_bytes()).is_err(), "HTTP's limit is the same");
}

/// The limits of a reason are those of HTTP.
#[tokio::test]
async fn a_cancellation_with_a_reason_that_does_not_fit_changes_nothing() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    let cancel = async |reason: Option<String>| {
        let cancel = sqlx::query("select onehold.cancel_order('main', $1, $2)");
        cancel.bind(id).bind(reason).execute(scene.db.pool()).await
    };
    for bad in [String::new(), "é".repeat(1_001)] {
        let error = cancel(Some(bad)).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().unwrap(), "OH422");
    }
    assert_eq!(scene.history(id).await, ["placed", "reserved"]);
    cancel(Some(format!("{}\n", "é".repeat(999)))).await.unwrap();
    cancel(None).await.unwrap();
    assert_eq!(scene.history(id).await, ["placed", "reserved", "cancelled"]);
}

/// SQL names the attribute whose conditions do not fit, HTTP the condition in it.
fn at_most_to_the_attribute(pointer: &str) -> String {
    match pointer.split_once("/attributes/") {
        Some((before, rest)) => format!("{before}/attributes/{}", rest.split('/').next().unwrap_or_default()),
        None => pointer.to_owned(),
    }
}
