//! Placing, reading and listing over real HTTP: cases A5 (its HTTP part), L3, L5 and L7.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::http::{Answer, KEY, Web, one_machine, send};
use crate::support::eventually;

const UNTIL: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_order_is_accepted_and_read_as_it_was_placed() {
    let web = Web::start().await;
    let body = json!({
        "reference": "R-1001", "buyer": "b-1", "hold_seconds": 60, "metadata": {"cart": "77"},
        "payment": {"amount": 19900, "currency": "EUR"},
        "lines": [{"asset": {"category": "box ", "locations": ["BER"], "attributes": {"ram_gb": {"min": 128}}}}]
    });
    let placed = send(web.order("k", &body)).await;
    assert_eq!(placed.status, 202);
    let id = placed.body["id"].as_str().unwrap();
    assert_eq!(placed.headers["location"], format!("/v1/orders/{id}"));
    assert!(placed.headers.get("preference-applied").is_none());
    let shown = json!({
        "id": id, "reference": "R-1001", "status": "placed", "waiting": false, "placed_at": placed.body["placed_at"],
        "hold_expires_at": null, "refusal": null, "buyer": "b-1", "metadata": {"cart": "77"},
        "payment": {"state": "none", "amount": 19900, "currency": "EUR"},
        "lines": [{"line": 1, "quantity": 1, "reservations": [],
                   "asset": {"category": "box", "locations": ["BER"], "attributes": {"ram_gb": {"min": 128}}}}]
    });
    assert_eq!(placed.body, shown);
    assert!(placed.body["placed_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(send(web.get(&format!("/v1/orders/{id}"))).await.body, shown);
    let events = send(web.get(&format!("/v1/orders/{id}/events"))).await.body;
    assert_eq!((&events["data"][0]["kind"], &events["data"][0]["actor"]), (&json!("placed"), &json!("api:bootstrap")));
    assert_eq!((events["data"].as_array().unwrap().len(), &events["next_cursor"]), (1, &Value::Null));
    let jobs = format!("select count(*) from apalis.jobs where job_type = 'reserve' and idempotency_key = '{id}'");
    assert_eq!(web.number(&jobs).await, 1);
}

#[tokio::test]
async fn the_same_key_and_body_give_the_same_order_as_it_now_stands() {
    let web = Web::start().await;
    let id = web.placed("k").await;
    let before = web.written().await;
    // Case L7: other white space, other order of fields, another spelling of a number.
    let bodies = [
        r#"{"lines": [{"asset": {"category": "box"}, "quantity": 1}], "hold_seconds": 1000, "metadata": {"a": 1, "b": 2}}"#,
        "{\n\"metadata\":{\"b\":2,\"a\":1},\t\"hold_seconds\":1e3,\n\"lines\":[{\"quantity\":1.0,\"asset\":{\"category\":\"box\"}}] }",
    ];
    let mut ids = BTreeSet::new();
    for (n, body) in bodies.into_iter().enumerate() {
        let answer = send(web.post("/v1/orders").header("Idempotency-Key", "k2").body(body)).await;
        assert_eq!(answer.status.as_u16(), if n == 0 { 202 } else { 200 }, "{answer:?}");
        ids.insert(answer.body["id"].to_string());
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(web.written().await, before + 4, "one order: its row, its line, its event and its job");
    web.run(&format!("update onehold.orders set status = 'cancelled' where id = '{id}'")).await;
    let again = send(web.order("k", &one_machine())).await;
    assert_eq!((again.status.as_u16(), &again.body["status"]), (200, &json!("cancelled")));
    assert_eq!(again.headers["location"], format!("/v1/orders/{id}"));
}

#[tokio::test]
async fn the_same_key_with_another_body_is_refused() {
    let web = Web::start().await;
    web.placed("k").await;
    let before = web.written().await;
    for other in [
        json!({"lines": [{"asset": {"category": "box"}, "quantity": 2}]}),
        json!({"lines": [{"asset": {"category": "box"}}], "metadata": {}}),
        json!({"lines": [{"asset": {"category": "box "}}]}),
    ] {
        assert_eq!(send(web.order("k", &other)).await.code(), (422, "idempotency_key_reused"));
    }
    assert_eq!(web.written().await, before);
}

/// Case L5: the first placement has not committed yet when the second comes.
#[tokio::test]
async fn the_same_key_waits_for_a_placement_that_still_runs_and_then_knows() {
    let web = Web::start().await;
    for (key, body, expected) in [
        ("other", json!({"lines": [{"asset": {"category": "else"}}]}), (422, "idempotency_key_reused")),
        ("same", one_machine(), (200, "")),
    ] {
        let mut first = web.db.pool().acquire().await.unwrap();
        sqlx::raw_sql("begin").execute(&mut *first).await.unwrap();
        sqlx::query("select onehold.store_order(1, $1, $2, $2->'lines', 'sql')")
            .bind(key)
            .bind(one_machine())
            .execute(&mut *first)
            .await
            .unwrap();
        let second = tokio::spawn(send(web.order(key, &body)));
        let waiting = "select count(*) from pg_stat_activity
                       where datname = current_database() and wait_event_type = 'Lock'";
        eventually(UNTIL, async || web.number(waiting).await == 1).await;
        sqlx::raw_sql("commit").execute(&mut *first).await.unwrap();
        let answer: Answer = second.await.unwrap();
        let got = if answer.status.is_success() { (answer.status.as_u16(), "") } else { answer.code() };
        assert_eq!(got, expected, "{answer:?}");
    }
    assert_eq!(web.number("select count(*) from onehold.orders").await, 2);
}

/// Case A5.
#[tokio::test]
async fn five_placements_with_one_key_at_once_are_one_order() {
    let web = Arc::new(Web::start().await);
    web.run(
        "insert into onehold.assets (shop_id, key, category, location)
         select 1, 'm-' || n, 'box', 'BER' from generate_series(1, 4) n",
    )
    .await;
    let barrier = Arc::new(Barrier::new(5));
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let (web, barrier) = (web.clone(), barrier.clone());
            tokio::spawn(async move {
                let request = web.order("one key", &one_machine());
                barrier.wait().await;
                send(request).await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        let answer = task.await.unwrap();
        answers.push((answer.status.as_u16(), answer.body["id"].to_string()));
    }
    answers.sort_unstable();
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 202]);
    assert_eq!(answers.iter().map(|(_, id)| id).collect::<BTreeSet<_>>().len(), 1);
    assert_eq!(web.number("select count(*) from onehold.orders").await, 1);
    assert_eq!(web.number("select count(*) from onehold.order_lines").await, 1);
    assert_eq!(web.number("select count(*) from onehold.order_events").await, 1, "the losers left no event");
    assert_eq!(web.number("select count(*) from apalis.jobs").await, 1);
}

#[tokio::test]
async fn a_placement_needs_one_printable_idempotency_key() {
    let web = Web::start().await;
    let before = web.written().await;
    let request = || web.post("/v1/orders").json(&one_machine());
    let missing = send(request()).await;
    assert_eq!(missing.code(), (400, "invalid_idempotency_key"));
    for bad in ["", &"x".repeat(256), "a\tb", "ä"] {
        let answer = send(request().header("Idempotency-Key", bad.as_bytes())).await;
        assert_eq!(answer.code(), (400, "invalid_idempotency_key"), "{bad}");
    }
    let twice = send(request().header("Idempotency-Key", "a").header("Idempotency-Key", "a")).await;
    assert_eq!(twice.code(), (400, "invalid_idempotency_key"));
    assert_eq!(web.written().await, before);
    for good in ["x", &"x".repeat(255), "a b~!\"'"] {
        assert_eq!(send(request().header("Idempotency-Key", good)).await.status, 202, "{good}");
    }
}

/// Case L3: one rule for names, on the way in and when they are compared.
#[tokio::test]
async fn names_are_compared_normalised_and_with_their_case() {
    let web = Web::start().await;
    web.run(
        "insert into onehold.assets (shop_id, key, category, location)
         values (1, 'a', 'test', 'BER'), (1, 'b', 'TEST', 'BER'), (1, 'c', 'caf\u{e9}', 'BER')",
    )
    .await;
    for (asked, keys) in [
        ("test", vec!["a"]),
        ("test ", vec!["a"]),
        ("TEST", vec!["b"]),
        ("Test", vec![]),
        ("caf\u{e9}", vec!["c"]),
        ("caf\u{65}\u{301}", vec!["c"]),
    ] {
        let answer = send(web.post("/v1/availability").json(&json!({"lines": [{"asset": {"category": asked}}]}))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let candidates = answer.body["lines"][0]["candidates"].as_array().unwrap();
        let found: Vec<_> = candidates.iter().map(|c| c["asset"].as_str().unwrap()).collect();
        assert_eq!(found, keys, "{asked:?}");
    }
}

#[tokio::test]
async fn availability_promises_and_writes_nothing() {
    let web = Web::start().await;
    web.run(
        "insert into onehold.assets (shop_id, key, category, location, status)
         select 1, 'm-' || lpad(n::text, 3, '0'), 'box', 'BER', case when n > 1 then 'ready' else 'maintenance' end
         from generate_series(1, 120) n",
    )
    .await;
    let before = web.written().await;
    let ask = async |query: &str| send(web.post(&format!("/v1/availability{query}")).json(&one_machine())).await;
    let first = ask("").await.body["lines"][0].clone();
    assert_eq!((&first["line"], &first["available"]), (&json!(1), &json!(119)));
    assert_eq!(first["candidates"].as_array().unwrap().len(), 100);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = ask(&format!("?cursor={cursor}")).await.body["lines"][0].clone();
    assert_eq!((second["candidates"].as_array().unwrap().len(), &second["next_cursor"]), (20, &Value::Null));
    let all = [&first, &second].into_iter().flat_map(|page| page["candidates"].as_array().unwrap());
    let unready: Vec<_> = all.filter(|c| c["eligible"] == false).collect();
    assert_eq!(unready, [&json!({"asset": "m-001", "eligible": false, "reasons": ["not_ready"]})]);
    for bad in ["-1", "x", "1000001", "99999999999999999999"] {
        assert_eq!(ask(&format!("?cursor={bad}")).await.code(), (400, "invalid_query"), "{bad}");
    }
    let unfit = send(web.post("/v1/availability").json(&json!({"lines": [{"asset": {}}]}))).await;
    assert_eq!(unfit.problem(), (422, "invalid_body", vec!["/lines/0/asset/category"]));
    assert_eq!(web.written().await, before);
}

#[tokio::test]
async fn orders_are_listed_newest_first_a_page_at_a_time() {
    let web = Web::start().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let mut body = one_machine();
        body["reference"] = format!("R-{}", n % 2).into();
        let answer = send(web.order(&n.to_string(), &body)).await;
        ids.insert(0, answer.body["id"].as_str().unwrap().to_owned());
    }
    web.run(&format!("update onehold.orders set status = 'cancelled' where id = '{}'", ids[0])).await;
    let pages = async |query: &str| {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = send(web.get(&format!("/v1/orders?{query}&cursor={cursor}"))).await.body;
            let orders = page["data"].as_array().unwrap().clone();
            seen.push(orders.iter().map(|order| order["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => return seen,
            }
        }
    };
    assert_eq!(pages("limit=2").await, [&ids[0..2], &ids[2..4], &ids[4..5]]);
    assert_eq!(pages("limit=5").await, [&ids[..]], "a full last page says that it is the last");
    assert_eq!(pages("").await, [&ids[..]]);
    assert_eq!(pages("status=cancelled&reference=&limit=").await, [&ids[0..1]]);
    assert_eq!(pages("reference=R-1").await, [[ids[1].clone(), ids[3].clone()]]);
    assert_eq!(pages("reference=r-1&status=placed").await, [Vec::<String>::new()]);
}

#[tokio::test]
async fn a_query_that_does_not_fit_is_refused() {
    let web = Web::start().await;
    let key = hex("not an id");
    for bad in [
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=x",
        "limit=1.5",
        "limit=99999999999999999999",
        "cursor=x",
        "cursor=00",
        &format!("cursor={key}"),
        "status=sold",
        "status=PLACED",
        "page=2",
        "limit=1&limit=2",
        "reference=a%00",
    ] {
        assert_eq!(send(web.get(&format!("/v1/orders?{bad}"))).await.code(), (400, "invalid_query"), "{bad}");
    }
    // What is no UTF-8 is replaced, and fits nothing.
    assert_eq!(send(web.get("/v1/orders?reference=%ff")).await.body["data"], json!([]));
}

fn hex(text: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect()
}

#[tokio::test]
async fn what_is_no_order_is_not_found() {
    let web = Web::start().await;
    for id in ["00000000-0000-7000-8000-000000000000", "1", "x", "%20", "%ff", "null", "..%2f"] {
        for (method, rest) in [("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/release")] {
            let method: Method = method.parse().unwrap();
            let answer = send(web.bare(method, &format!("/v1/orders/{id}{rest}")).bearer_auth(KEY)).await;
            assert_eq!(answer.code(), (404, "not_found"), "{id}{rest}");
        }
    }
}

#[tokio::test]
async fn a_page_of_large_orders_ends_early_and_goes_on_behind_its_cursor() {
    let web = Web::start().await;
    let id = web.placed("small").await;
    // Written past the API, which takes a megabyte and no more.
    web.run(
        "insert into onehold.orders (shop_id, idempotency_key, body)
         select 1, 'large-' || n, jsonb_build_object('metadata', jsonb_build_object('a', repeat('x', 3 << 20))) from generate_series(1, 7) n",
    )
    .await;
    let (mut seen, mut pages, mut path) = (Vec::new(), 0, "/v1/orders?limit=200".to_owned());
    loop {
        let page = send(web.get(&path)).await.body;
        let ids = page["data"].as_array().unwrap().iter().map(|order| order["id"].as_str().unwrap().to_owned());
        seen.extend(ids);
        pages += 1;
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/orders?limit=200&cursor={cursor}");
    }
    assert_eq!((seen.len(), pages), (8, 3));
    assert!(seen.is_sorted_by(|a, b| a > b) && seen.contains(&id));
}

#[tokio::test]
async fn a_key_that_an_open_transaction_holds_is_told_as_that() {
    let web = Web::start().await;
    let mut conn = web.db.pool().acquire().await.unwrap();
    sqlx::raw_sql("begin; select onehold.place_order('main', 'k', '{\"lines\": [{\"sku\": \"a\"}]}')")
        .execute(&mut *conn)
        .await
        .unwrap();
    let answer = send(web.order("k", &one_machine())).await;
    assert_eq!(answer.code(), (503, "unavailable"));
    let detail = answer.body["detail"].as_str().unwrap();
    assert!(detail.contains("still open") && detail.contains("idempotency key"), "{detail}");
    sqlx::raw_sql("rollback").execute(&mut *conn).await.unwrap();
}
