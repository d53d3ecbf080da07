//! Stock over HTTP: movements that count once, cuts below what is held, names, bodies that do not fit, and what
//! would be had (cases C6, L1, L3, L4, M1, M4, P2).

use onehold::allocator::{self, Outcome};
use onehold::shops::Scope;
use onehold::sweep;
use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::http::{Answer, Web, send};
use crate::served::shop_with_key;
use crate::support::waiting::race;

fn receipt(sku: &str, delta: i64, reference: &str) -> Value {
    json!({"sku": sku, "location": "BER", "delta": delta, "kind": "receipt", "reference": reference})
}

fn cut(delta: i64, reference: &str) -> Value {
    json!({"sku": "PSU", "location": "BER", "delta": delta, "kind": "adjustment", "reference": reference})
}

fn forced(delta: i64, reference: &str) -> Value {
    let mut body = cut(delta, reference);
    body["force"] = true.into();
    body
}

impl Web {
    async fn post_movement(&self, body: &Value) -> Answer {
        send(self.post("/v1/stock/movements").json(body)).await
    }

    /// Posts a movement that must be new.
    async fn moved(&self, body: &Value) {
        let answer = self.post_movement(body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// What a SKU has at its locations.
    async fn stock(&self, sku: &str) -> Vec<Value> {
        let answer = send(self.get(&format!("/v1/stock/{sku}"))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["locations"].as_array().unwrap().clone()
    }

    /// Places an order and runs its reserve job.
    async fn ordered(&self, key: &str, lines: &Value) -> (String, Outcome) {
        let placed = send(self.order(key, &json!({ "lines": lines }))).await;
        assert_eq!(placed.status, 202, "{placed:?}");
        let id = placed.body["id"].as_str().unwrap().to_owned();
        let outcome = allocator::run(&self.db, 1, id.parse::<Uuid>().unwrap()).await.unwrap();
        (id, outcome)
    }

    async fn hold(&self, key: &str, units: i64) -> String {
        let (id, outcome) = self.ordered(key, &json!([{"sku": "PSU", "quantity": units}])).await;
        assert_eq!(outcome, Outcome::Reserved);
        id
    }

    async fn verified(&self) {
        for check in onehold::ops::verify::verify(&self.db, |_| {}).await.unwrap() {
            assert_eq!(check.broken, 0, "{}", check.invariant);
        }
    }

    async fn moves(&self) -> i64 {
        self.number(
            "select (select count(*) from onehold.stock_movements) + (select count(*) from onehold.stock_deltas)
                  + (select count(*) from onehold.stock_levels) + (select count(*) from onehold.stock_shortfalls)",
        )
        .await
    }
}

#[tokio::test]
async fn a_movement_is_posted_once_and_on_hand_follows() {
    let web = Web::start().await;
    let first = web.post_movement(&receipt("PSU", 5, "PO-1")).await;
    assert_eq!(first.status, 201);
    let movement = &first.body;
    let shown = ["sku", "location", "delta", "kind", "reference", "actor"].map(|field| movement[field].clone());
    assert_eq!(json!(shown), json!(["PSU", "BER", 5, "receipt", "PO-1", "api:bootstrap"]));
    assert!(movement["id"].is_string() && movement["at"].is_string(), "{movement}");
    let level = json!({"location": "BER", "on_hand": 5, "held": 0, "available": 5, "pooled": 5});
    assert_eq!(web.stock("PSU").await, std::slice::from_ref(&level));

    // Case C6: a restock that comes twice counts once.
    let again = web.post_movement(&receipt(" PSU", 5, "PO-1")).await;
    assert_eq!((again.status.as_u16(), &again.body), (200, movement));
    for other in [receipt("PSU", 6, "PO-1"), receipt("CPU", 5, "PO-1"), cut(5, "PO-1")] {
        assert_eq!(web.post_movement(&other).await.code(), (422, "reference_reused"), "{other}");
    }
    assert_eq!(web.stock("PSU").await, [level]);
    assert_eq!(web.number("select count(*) from onehold.stock_levels").await, 1);

    let returned = json!({"sku": "PSU", "location": "FRA", "delta": 2, "kind": "return", "reference": "RMA 7 é"});
    web.moved(&returned).await;
    web.moved(&cut(-1, "count")).await;
    web.hold("one", 1).await;
    let expected = [
        json!({"location": "BER", "on_hand": 4, "held": 1, "available": 3, "pooled": 3}),
        json!({"location": "FRA", "on_hand": 2, "held": 0, "available": 2, "pooled": 2}),
    ];
    assert_eq!(web.stock("PSU").await, expected);
    web.verified().await;
}

#[tokio::test]
async fn of_one_reference_at_once_one_counts() {
    let web = Web::start().await;
    let same = (0..8).map(|_| web.post("/v1/stock/movements").json(&receipt("PSU", 5, "PO-1")));
    let answers = race(same.map(send)).await;
    let mut codes: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [200, 200, 200, 200, 200, 200, 200, 201]);
    assert!(answers.iter().all(|answer| answer.body == answers[0].body));
    // On other pools at once, so that no lock is shared: one is first, and the rest are another content.
    let other = (0..8).map(|n| web.post("/v1/stock/movements").json(&receipt(&format!("S{n}"), 5, "PO-2")));
    let answers = race(other.map(send)).await;
    let reused = answers.iter().filter(|answer| answer.status == 422).map(Answer::code);
    assert_eq!(reused.collect::<Vec<_>>(), [(422, "reference_reused"); 7]);
    assert_eq!(web.number("select sum(delta) from onehold.stock_movements").await, 10);
    assert_eq!(web.number("select count(*) from onehold.pool_units").await, 10);
    assert_eq!(web.number("select count(*) from onehold.stock_levels").await, 2);
    web.verified().await;
}

#[tokio::test]
async fn a_cut_below_what_is_held_needs_force_and_is_shown_until_it_is_made_good() {
    let web = Web::start().await;
    web.moved(&receipt("PSU", 10, "PO-1")).await;
    web.hold("eight", 8).await;
    let before = web.moves().await;
    // Case M1.
    let refused = web.post_movement(&cut(-5, "theft")).await;
    assert_eq!(refused.code(), (409, "would_oversell"));
    let figures = ["on_hand", "held", "lacking"].map(|member| refused.body[member].clone());
    assert_eq!(json!(figures), json!([10, 8, 3]));
    assert!(refused.body["detail"].as_str().unwrap().contains("8 of them are held"), "{refused:?}");
    assert_eq!(web.moves().await, before);
    let untouched = json!({"location": "BER", "on_hand": 10, "held": 8, "available": 2, "pooled": 2});
    assert_eq!(web.stock("PSU").await, [untouched], "unit rows that the refused cut took in are back");

    web.moved(&forced(-5, "theft")).await;
    assert_eq!(web.post_movement(&cut(-5, "theft")).await.status, 200, "force is how, not what");
    let short = json!({"location": "BER", "on_hand": 5, "held": 8, "available": -3, "pooled": 0, "shortfall": 3});
    assert_eq!(web.stock("PSU").await, [short]);
    assert_eq!(web.post_movement(&cut(-1, "more")).await.code(), (409, "would_oversell"));
    web.verified().await;

    web.moved(&receipt("PSU", 1, "PO-2")).await;
    assert_eq!(web.stock("PSU").await[0]["shortfall"], 2);
    let by = "select count(*) from onehold.stock_shortfalls where reference = 'theft' and cleared_at is null";
    assert_eq!(web.number(by).await, 1, "the movement that took it stays named");
    web.moved(&receipt("PSU", 3, "PO-3")).await;
    let good = json!({"location": "BER", "on_hand": 9, "held": 8, "available": 1, "pooled": 1});
    assert_eq!(web.stock("PSU").await, [good]);
    assert_eq!(web.number("select count(*) from onehold.stock_shortfalls where cleared_at is not null").await, 1);
    web.verified().await;
}

#[tokio::test]
async fn a_shortfall_ends_with_the_holds_that_lacked_their_units() {
    let web = Web::start().await;
    web.moved(&receipt("PSU", 4, "PO-1")).await;
    let (first, second) = (web.hold("a", 3).await, web.hold("b", 1).await);
    web.moved(&forced(-2, "theft")).await;
    assert_eq!(web.stock("PSU").await[0]["shortfall"], 2);
    send(web.post(&format!("/v1/orders/{second}/cancel")).json(&json!({}))).await;
    assert_eq!(web.stock("PSU").await[0]["shortfall"], 1);
    web.run(&format!("update onehold.reservations set expires_at = now() - interval '1 s' where order_id = '{first}'"))
        .await;
    sweep::sweep(&web.db).await.unwrap();
    let good = json!({"location": "BER", "on_hand": 2, "held": 0, "available": 2, "pooled": 2});
    assert_eq!(web.stock("PSU").await, [good]);
    web.verified().await;
}

#[tokio::test]
async fn units_that_are_being_bought_when_they_are_cut_are_accounted_for() {
    let web = Web::start().await;
    web.moved(&receipt("PSU", 2, "PO-1")).await;
    // A buyer in the middle of his transaction.
    let mut buyer = web.db.pool().acquire().await.unwrap();
    sqlx::raw_sql("begin; select onehold.take_units(1, 'PSU', 'BER', 1)").execute(&mut *buyer).await.unwrap();
    assert_eq!(web.post_movement(&cut(-2, "theft")).await.code(), (409, "would_oversell"));
    web.moved(&cut(-1, "loss")).await;
    web.moved(&forced(-1, "theft")).await;
    assert_eq!(web.stock("PSU").await[0]["shortfall"], 1);
    web.verified().await;
    // He does not buy after all: the row that stands for nothing is taken in, and nothing is lacking.
    sqlx::raw_sql("rollback").execute(&mut *buyer).await.unwrap();
    sweep::requeue(&web.db).await.unwrap();
    onehold::stock::pools::refill(&web.db, 1, "PSU", "BER").await.unwrap();
    let nothing = json!({"location": "BER", "on_hand": 0, "held": 0, "available": 0, "pooled": 0});
    assert_eq!(web.stock("PSU").await, [nothing]);
    let jobs = "select count(*) from apalis.jobs where job_type = 'refill'";
    assert_eq!(web.number(jobs).await, 1, "the housekeeping found it");
    web.verified().await;
}

#[tokio::test]
async fn a_sku_that_nobody_stocked_is_unavailable_and_not_found() {
    let web = Web::start().await;
    // Case M4.
    let (id, outcome) = web.ordered("a", &json!([{"sku": "GHOST"}])).await;
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    let order = send(web.get(&format!("/v1/orders/{id}"))).await.body;
    assert_eq!((&order["status"], &order["refusal"]["kind"]), (&json!("refused"), &json!("unavailable")));
    for path in ["GHOST", "%00", "%FF", "movements"] {
        assert_eq!(send(web.get(&format!("/v1/stock/{path}"))).await.code(), (404, "not_found"), "{path}");
    }
    let answer = send(web.post("/v1/availability").json(&json!({"lines": [{"sku": "GHOST"}]}))).await;
    assert_eq!(
        (&answer.body["lines"][0]["available"], &answer.body["lines"][0]["candidates"]),
        (&json!(0), &json!([]))
    );
    web.moved(&receipt("movements", 1, "m")).await;
    assert_eq!(web.stock("movements").await[0]["on_hand"], 1);
}

#[tokio::test]
async fn a_sku_is_one_name_however_it_is_spelt_and_case_counts() {
    let web = Web::start().await;
    // Case L3: the same rule on write, in orders and on read.
    for (n, sku) in ["test", "TEST", "test ", "caf\u{e9}", " cafe\u{301}"].into_iter().enumerate() {
        web.moved(&receipt(sku, 1 << n, &format!("PO-{n}"))).await;
    }
    for (path, on_hand) in
        [("test", 5), ("%20test%20", 5), ("TEST", 2), ("caf%C3%A9", 24), ("cafe%CC%81", 24), ("%C2%A0cafe%CC%81", 24)]
    {
        assert_eq!(web.stock(path).await[0]["on_hand"], on_hand, "{path}");
    }
    let mut body = receipt("x", 1, "PO-x");
    body["location"] = " BER\u{a0}".into();
    web.moved(&body).await;
    assert_eq!(web.stock("x").await[0]["location"], "BER");
    let (_, outcome) = web.ordered("a", &json!([{"sku": " cafe\u{301}", "quantity": 24, "locations": ["BER "]}])).await;
    assert_eq!(outcome, Outcome::Reserved);
    assert_eq!(web.stock("caf%C3%A9").await[0]["held"], 24);
    assert_eq!(web.number("select count(distinct sku) from onehold.stock_movements").await, 4);
}

#[tokio::test]
async fn a_movement_that_does_not_fit_names_every_fault_and_writes_nothing() {
    let web = Web::start().await;
    // Case L1.
    for bad in ["0", "-5", "2147483648", "1.5", "\"2\"", "null", "1e10", "18446744073709551616"] {
        let mut body = receipt("PSU", 1, "PO-1");
        body["delta"] = serde_json::from_str(bad).unwrap();
        assert_eq!(web.post_movement(&body).await.problem(), (422, "invalid_body", vec!["/delta"]), "{bad}");
    }
    let every = json!({"sku": "\u{7}", "location": "", "delta": 0, "kind": "sale", "reference": "onehold:sale:1",
        "force": 1, "note": "x"});
    let pointers = vec!["/note", "/sku", "/location", "/kind", "/delta", "/reference", "/force"];
    assert_eq!(web.post_movement(&every).await.problem(), (422, "invalid_body", pointers));
    let missing = vec!["/sku", "/location", "/kind", "/delta", "/reference"];
    assert_eq!(web.post_movement(&json!({})).await.problem(), (422, "invalid_body", missing));
    // Case L4.
    for (field, value) in [("sku", "a\u{0}"), ("location", "\u{0}"), ("reference", "r\u{0}")] {
        let mut body = receipt("PSU", 1, "PO-1");
        body[field] = value.into();
        let pointer = format!("/{field}");
        assert_eq!(web.post_movement(&body).await.problem(), (422, "invalid_body", vec![pointer.as_str()]));
    }
    let raw =
        |text: &str| web.post("/v1/stock/movements").header("Content-Type", "application/json").body(text.to_owned());
    let surrogate = r#"{"sku": "\ud800", "location": "BER", "delta": 1, "kind": "receipt", "reference": "r"}"#;
    assert_eq!(send(raw(surrogate)).await.code(), (400, "invalid_json"));
    assert_eq!(send(raw(&"[".repeat(200))).await.code(), (400, "invalid_json"));
    assert_eq!(send(raw(&"x".repeat((1 << 20) + 1))).await.code(), (413, "body_too_large"));
    assert_eq!(web.moves().await, 0);
    // 1e3 is a thousand, and a thousand million thrice is more than 32 bits hold.
    let thousand = r#"{"sku": "PSU", "location": "BER", "delta": 1e3, "kind": "receipt", "reference": "r"}"#;
    assert_eq!(send(raw(thousand)).await.body["delta"], 1_000);
    for n in 0..3 {
        web.moved(&receipt("PSU", 1_000_000_000, &n.to_string())).await;
    }
    assert_eq!(web.stock("PSU").await[0]["available"], 3_000_001_000_i64);
    let (_, outcome) = web.ordered("more than the pool", &json!([{"sku": "PSU", "quantity": 3_000}])).await;
    assert_eq!(outcome, Outcome::Reserved);
    web.verified().await;
}

#[tokio::test]
async fn stock_needs_a_key_with_the_scope_stock_and_is_its_shops() {
    let web = Web::start().await;
    web.moved(&receipt("PSU", 5, "PO-1")).await;
    let (_, orders) = shop_with_key(&web.db, "orders-only", &[Scope::Orders]).await;
    let (_, other) = shop_with_key(&web.db, "other", &[Scope::Stock]).await;
    let (read, write) = ("/v1/stock/PSU", "/v1/stock/movements");
    let with = |key: &str| {
        let read = web.bare(reqwest::Method::GET, read).bearer_auth(key);
        (read, web.bare(reqwest::Method::POST, write).bearer_auth(key).json(&receipt("PSU", 7, "PO-1")))
    };
    for (key, code) in [("none", (401, "unauthorized")), (&orders, (403, "forbidden"))] {
        let (read, write) = with(key);
        assert_eq!(send(read).await.code(), code);
        assert_eq!(send(write).await.code(), code);
    }
    let (read, write) = with(&other);
    assert_eq!(send(read).await.code(), (404, "not_found"));
    // Another shop's reference is another one.
    assert_eq!(send(write).await.status, 201);
    assert_eq!(web.stock("PSU").await[0]["on_hand"], 5);
    assert_eq!(send(with(&other).0).await.body["locations"][0]["on_hand"], 7);
}

#[tokio::test]
async fn availability_of_stock_says_what_would_be_had_where_and_why_not() {
    let web = Web::start().await;
    for (location, units) in [("BER", 5), ("FRA", 3), ("MUC", 8)] {
        let mut body = receipt("PSU", units, location);
        body["location"] = location.into();
        web.moved(&body).await;
    }
    let (lapsing, _) = web.ordered("a", &json!([{"sku": "PSU", "quantity": 4, "locations": ["BER"]}])).await;
    let before = (web.moves().await, web.written().await);
    let ask = async |lines: Value| {
        let answer = send(web.post("/v1/availability").json(&json!({ "lines": lines }))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["lines"].as_array().unwrap().clone()
    };
    let one = |location: &str, available: i64, reasons: &[&str]| json!({"location": location, "available": available, "eligible": reasons.is_empty(), "reasons": reasons});
    // One location must fill it.
    let whole = ask(json!([{"sku": "PSU", "quantity": 4, "locations": ["FRA", "BER"]}])).await;
    let expected = json!({"line": 1, "quantity": 4, "available": 3, "next_cursor": null, "candidates": [
        one("FRA", 3, &["insufficient_stock"]), one("BER", 1, &["held"]), one("MUC", 8, &["wrong_location"])]});
    assert_eq!(whole, [expected]);
    // Several may, together.
    let split = ask(json!([{"sku": "PSU", "quantity": 4, "locations": ["FRA", "BER"], "split": true}])).await;
    assert_eq!(split[0]["available"], 4);
    assert_eq!(split[0]["candidates"][1], one("BER", 1, &[]));
    // Any location; the same SKU on several lines counts as its sum, and beside an asset.
    let lines = json!([{"sku": "PSU", "quantity": 6}, {"asset": {"category": "box"}}, {"sku": "PSU", "quantity": 3},
        {"sku": "PSU", "quantity": 3, "split": true}]);
    let cart = ask(lines).await;
    let available: Vec<_> = cart.iter().map(|line| line["available"].as_i64().unwrap()).collect();
    assert_eq!(available, [8, 0, 3, 3]);
    assert_eq!(cart[0]["candidates"][0], one("MUC", 8, &[]), "the fullest first");
    // A lapsed hold is in nobody's way.
    web.run(&format!(
        "update onehold.reservations set expires_at = now() - interval '1 s' where order_id = '{lapsing}'"
    ))
    .await;
    assert_eq!(ask(json!([{"sku": "PSU", "quantity": 5, "locations": ["BER"]}])).await[0]["available"], 5);
    let first = send(web.post("/v1/availability?cursor=2").json(&json!({"lines": [{"sku": "PSU"}]}))).await;
    assert_eq!(first.body["lines"][0]["candidates"].as_array().unwrap().len(), 1);
    assert_eq!((web.moves().await, web.written().await), before);
}
