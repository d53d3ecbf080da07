//! Payment webhooks over real HTTP with real signatures (cases W2, W8, W9, W10, P4).

use std::io;
use std::sync::{Arc, Mutex};

use onehold::db::Db;
use onehold::shops::Shop;
use reqwest::RequestBuilder;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use tokio::sync::Barrier;

use crate::payments_signing::{now, standard, standard_at, standard_event, stripe, stripe_event, stripe_header};
use crate::served::{STANDARD_SECRETS, STRIPE_SECRETS, Served, answer, problem, shop_with_key};
use crate::support::database;
use crate::support::process::{Running, in_second_role, second_role};

const OTHER_STRIPE: &str = "whsec_stripe_of_another_shop";
const OTHER_STANDARD: &str = "whsec_c2VjcmV0IG9mIGFub3RoZXIgc2hvcA==";

async fn served() -> (Db, Served) {
    let db = database().await.db;
    let served = Served::start(&db).await;
    (db, served)
}

async fn another_shop(db: &Db) -> Shop {
    let (shop, _) = shop_with_key(db, "other", &[onehold::shops::Scope::Orders]).await;
    for (provider, secret) in [("stripe", OTHER_STRIPE), ("standard", OTHER_STANDARD)] {
        add_secret(db, &shop, provider, secret, "1 hour").await;
    }
    shop
}

async fn add_secret(db: &Db, shop: &Shop, provider: &str, secret: &str, valid: &str) {
    sqlx::query(
        "insert into onehold.webhook_secrets (shop_id, provider, secret, valid_until)
         values ($1, $2, $3, clock_timestamp() + $4::text::interval)",
    )
    .bind(shop.id)
    .bind(provider)
    .bind(secret)
    .bind(valid)
    .execute(db.pool())
    .await
    .unwrap();
}

/// How many events are kept, and how many convert jobs there are.
async fn kept(db: &Db) -> (i64, i64) {
    sqlx::query_as(
        "select (select count(*) from onehold.payment_events),
                (select count(*) from apalis.jobs where job_type = 'convert')",
    )
    .fetch_one(db.pool())
    .await
    .unwrap()
}

async fn accepted(request: RequestBuilder) {
    assert_eq!(answer(request).await, (200, json!({"received": true})));
}

async fn not_believed(request: RequestBuilder) -> Value {
    problem(request, 400, "invalid_signature").await
}

#[tokio::test]
async fn an_event_is_kept_with_what_it_says_and_its_bytes() {
    let (db, served) = served().await;
    let (first, second) = (stripe_event("evt_1"), standard_event());
    accepted(stripe(&served, "main", STRIPE_SECRETS[1], first.as_bytes())).await;
    accepted(standard(&served, "main", STANDARD_SECRETS[1], "msg_1", &second)).await;
    let rows: Vec<Value> = sqlx::query_scalar(
        "select to_jsonb(e) - 'payload' - 'received_at' from onehold.payment_events e order by provider desc",
    )
    .fetch_all(db.pool())
    .await
    .unwrap();
    let row = |provider: &str, event: &str, kind: &str, payment: &str| {
        json!({"shop_id": 1, "provider": provider, "event_id": event, "type": kind, "effect": "succeeded",
            "order_ref": "R-1", "payment_id": payment, "amount": 19900, "currency": "EUR", "state": "pending",
            "order_id": null, "outcome": null, "applied_at": null})
    };
    let expected = [
        row("stripe", "evt_1", "payment_intent.succeeded", "pi_1"),
        row("standard", "msg_1", "payment.succeeded", "p-1"),
    ];
    assert_eq!(rows, expected);
    let payloads: Vec<Vec<u8>> =
        sqlx::query_scalar("select payload from onehold.payment_events order by provider desc")
            .fetch_all(db.pool())
            .await
            .unwrap();
    assert_eq!(payloads, [first.into_bytes(), second.into_bytes()]);
    assert_eq!(kept(&db).await, (2, 2));
}

#[tokio::test]
async fn one_event_sent_five_times_at_once_is_kept_once_and_answered_200_five_times() {
    let (db, served) = served().await;
    let body = stripe_event("evt_1");
    let barrier = Arc::new(Barrier::new(5));
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let (request, barrier) = (stripe(&served, "main", STRIPE_SECRETS[0], body.as_bytes()), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                accepted(request).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(kept(&db).await, (1, 1));
    // And once more a day later.
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], body.as_bytes())).await;
    assert_eq!(kept(&db).await, (1, 1));
}

#[tokio::test]
async fn each_shop_believes_its_own_current_secrets_and_no_others() {
    let (db, served) = served().await;
    let other = another_shop(&db).await;
    let (stripe_body, standard_body) = (stripe_event("evt_1"), standard_event());
    let by_stripe = |shop: &str, secret: &str| stripe(&served, shop, secret, stripe_body.as_bytes());
    let by_standard = |shop: &str, secret: &str| standard(&served, shop, secret, "msg_1", &standard_body);
    for wrong in [OTHER_STRIPE, "wrong", "", STANDARD_SECRETS[0]] {
        not_believed(by_stripe("main", wrong)).await;
    }
    for wrong in [OTHER_STANDARD, "d3Jvbmc=", ""] {
        not_believed(by_standard("main", wrong)).await;
    }
    not_believed(by_stripe("other", STRIPE_SECRETS[0])).await;
    not_believed(by_standard("other", STANDARD_SECRETS[0])).await;
    assert_eq!(kept(&db).await, (0, 0));

    // Both secrets of a rotation are valid, until the old one is not.
    for (n, secret) in STRIPE_SECRETS.into_iter().enumerate() {
        accepted(stripe(&served, "main", secret, stripe_event(&format!("evt_{n}")).as_bytes())).await;
    }
    for (n, secret) in STANDARD_SECRETS.into_iter().enumerate() {
        accepted(standard(&served, "main", secret, &format!("msg_{n}"), &standard_body)).await;
    }
    assert_eq!(kept(&db).await, (4, 4));
    add_secret(&db, &other, "stripe", "whsec_rotated", "1 hour").await;
    add_secret(&db, &other, "stripe", "whsec_expired", "-1 second").await;
    add_secret(&db, &other, "standard", "cm90YXRlZA==", "1 hour").await;
    accepted(stripe(&served, "other", OTHER_STRIPE, stripe_event("evt_a").as_bytes())).await;
    accepted(stripe(&served, "other", "whsec_rotated", stripe_event("evt_b").as_bytes())).await;
    not_believed(stripe(&served, "other", "whsec_expired", stripe_event("evt_c").as_bytes())).await;
    accepted(standard(&served, "other", OTHER_STANDARD, "msg_a", &standard_body)).await;
    accepted(standard(&served, "other", "cm90YXRlZA==", "msg_b", &standard_body)).await;
    assert_eq!(kept(&db).await, (8, 8));
}

#[tokio::test]
async fn a_signature_of_another_time_or_for_other_bytes_is_not_believed() {
    let (db, served) = served().await;
    let (stripe_body, standard_body) = (stripe_event("evt_1"), standard_event());
    // 303 s ahead, as the clock may tick between here and there; the unit tests stand at 301.
    for at in [now() - 301, now() + 303, 0] {
        let header = stripe_header(STRIPE_SECRETS[0], at, stripe_body.as_bytes());
        let request = served.post("/webhooks/main/stripe").header("stripe-signature", header).body(stripe_body.clone());
        not_believed(request).await;
        not_believed(standard_at(&served, "main", STANDARD_SECRETS[0], "msg_1", at, &standard_body)).await;
    }
    let spaced = |body: &str| serde_json::to_string_pretty(&serde_json::from_str::<Value>(body).unwrap()).unwrap();
    not_believed(stripe(&served, "main", STRIPE_SECRETS[0], stripe_body.as_bytes()).body(spaced(&stripe_body))).await;
    let request = standard(&served, "main", STANDARD_SECRETS[0], "msg_1", &standard_body);
    not_believed(request.body(spaced(&standard_body))).await;
    assert_eq!(kept(&db).await, (0, 0));
    // As they were signed, spaces and all, they are.
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], spaced(&stripe_body).as_bytes())).await;
    accepted(standard(&served, "main", STANDARD_SECRETS[0], "msg_1", &spaced(&standard_body))).await;
}

#[tokio::test]
async fn a_header_that_is_missing_or_absurd_is_not_believed() {
    let (db, served) = served().await;
    let (stripe_body, standard_body) = (stripe_event("evt_1"), standard_event());
    let to_stripe = || served.post("/webhooks/main/stripe").body(stripe_body.clone());
    not_believed(to_stripe()).await;
    let good = stripe_header(STRIPE_SECRETS[0], now(), stripe_body.as_bytes());
    let long = format!("{good}{}", ",v1=00".repeat(1_000));
    let lowest = format!("t={},v1=00", i64::MIN);
    for header in
        ["", "t=", "v1=00", "nonsense", "t=9223372036854775808,v1=00", &lowest, &long, &good.replace("v1", "v0")]
    {
        not_believed(to_stripe().header("stripe-signature", header)).await;
    }
    not_believed(to_stripe().header("stripe-signature", HeaderValue::from_bytes(b"t=\xff,v1=\xff").unwrap())).await;
    not_believed(to_stripe().header("stripe-signature", &good).header("stripe-signature", &good)).await;

    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let good = standard(&served, "main", STANDARD_SECRETS[0], "msg_1", &standard_body).build().unwrap();
    let send = |change: &dyn Fn(&mut HeaderMap)| {
        let mut request = good.try_clone().unwrap();
        change(request.headers_mut());
        RequestBuilder::from_parts(served.client.clone(), request)
    };
    for header in headers {
        not_believed(send(&|headers| _ = headers.remove(header))).await;
        not_believed(send(&|headers| _ = headers.append(header, HeaderValue::from_static("x")))).await;
        for value in [&b""[..], b"\xff", &[b'9'; 5_000], b"-9223372036854775808", b"9223372036854775807"] {
            let value = HeaderValue::from_bytes(value).unwrap();
            not_believed(send(&|headers| _ = headers.insert(header, value.clone()))).await;
        }
    }
    assert_eq!(kept(&db).await, (0, 0));
    accepted(send(&|_| {})).await;
}

#[tokio::test]
async fn nobody_learns_from_the_answer_which_shops_there_are() {
    let (db, served) = served().await;
    let body = stripe_event("evt_1");
    let badly_signed = not_believed(stripe(&served, "main", "wrong", body.as_bytes())).await;
    shop_with_key(&db, "silent", &[onehold::shops::Scope::Orders]).await;
    for shop in ["silent", "nosuch", "Main", "%00", "%FF", "a%2Fb", &"x".repeat(300)] {
        assert_eq!(
            not_believed(stripe(&served, shop, STRIPE_SECRETS[0], body.as_bytes())).await,
            badly_signed,
            "{shop}"
        );
        let request = standard(&served, shop, STANDARD_SECRETS[0], "msg_1", &standard_event());
        assert_eq!(not_believed(request).await, badly_signed, "{shop}");
    }
    assert_eq!(kept(&db).await, (0, 0));
}

#[tokio::test]
async fn a_signed_body_that_is_no_event_is_refused_and_not_kept() {
    let (db, served) = served().await;
    let whole = stripe_event("evt_1");
    for body in [
        &b""[..],
        b"{\"id\": \"evt_\xff\", \"type\": \"x\"}",
        &whole.as_bytes()[..whole.len() - 1],
        b"[]",
        b"\"text\"",
        b"null",
        &[[b'['; 200], [b']'; 200]].concat(),
        b"{\"type\": \"x\"}",
        b"{\"id\": \"evt_1\"}",
        b"{\"id\": \"evt\\u0000\", \"type\": \"x\"}",
        b"{\"id\": \"\\ud800\", \"type\": \"x\"}",
    ] {
        problem(stripe(&served, "main", STRIPE_SECRETS[0], body), 400, "invalid_event").await;
    }
    for body in ["", "{\"type\":", "[]", "{}", r#"{"type": "payment.succeeded"}"#] {
        problem(standard(&served, "main", STANDARD_SECRETS[0], "msg_1", body), 400, "invalid_event").await;
    }
    let refused = json!({"type": "payment.succeeded", "data": {"order_id": "R-1", "amount": -1}}).to_string();
    let refused =
        problem(standard(&served, "main", STANDARD_SECRETS[0], "msg_1", &refused), 400, "invalid_event").await;
    assert_eq!(refused["errors"][0]["pointer"], "/data/amount");
    assert_eq!(kept(&db).await, (0, 0));
}

#[tokio::test]
async fn a_body_of_ten_megabytes_is_refused_before_it_is_looked_at() {
    let (db, served) = served().await;
    let huge = format!(r#"{{"id": "evt_1", "type": "x", "pad": "{}"}}"#, "x".repeat(10 << 20));
    problem(stripe(&served, "main", STRIPE_SECRETS[0], huge.as_bytes()), 413, "body_too_large").await;
    problem(standard(&served, "main", STANDARD_SECRETS[0], "msg_1", &huge), 413, "body_too_large").await;
    assert_eq!(kept(&db).await, (0, 0));
    let most = format!(r#"{{"id": "evt_1", "type": "x", "pad": "{}"}}"#, "x".repeat((1 << 20) - 50));
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], most.as_bytes())).await;
}

#[tokio::test]
async fn an_event_of_an_unknown_type_is_kept_without_a_job() {
    let (db, served) = served().await;
    let body = json!({"id": "evt_1", "type": "invoice.created", "data": {"object": "anything"}}).to_string();
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], body.as_bytes())).await;
    accepted(standard(&served, "main", STANDARD_SECRETS[0], "msg_1", r#"{"type": "payment.pondered"}"#)).await;
    let unpaid = json!({"id": "evt_2", "type": "checkout.session.completed", "data": {"object": {"id": "cs_1",
        "payment_status": "unpaid", "client_reference_id": "R-1"}}})
    .to_string();
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], unpaid.as_bytes())).await;
    assert_eq!(kept(&db).await, (3, 0));
    let states: Vec<String> = sqlx::query_scalar("select distinct state || ' ' || effect from onehold.payment_events")
        .fetch_all(db.pool())
        .await
        .unwrap();
    assert_eq!(states, ["ignored none"]);
}

#[tokio::test]
async fn what_nobody_reads_of_an_event_may_be_anything_and_what_is_no_text_names_no_order() {
    let (db, served) = served().await;
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let unreadable = format!(r#"{{"\ud800": "\udfff", "n": [1e400], "deep": {deep}}}"#);
    let unknown = format!(r#"{{"id": "evt_1", "type": "a\ud800", "data": {{"object": {unreadable}}}}}"#);
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], unknown.as_bytes())).await;
    let unknown = format!(r#"{{"type": "\u0000{}", "data": {unreadable}}}"#, "x".repeat(300));
    accepted(standard(&served, "main", STANDARD_SECRETS[0], "msg_1", &unknown)).await;
    assert_eq!(kept(&db).await, (2, 0));
    let whole = stripe_event("evt_2").replacen('{', &format!("{{\"rest\": {unreadable},"), 1);
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], whole.as_bytes())).await;
    assert_eq!(kept(&db).await, (3, 1));
    let asked = "select payload from onehold.payment_events where event_id = 'msg_1'";
    let body: Vec<u8> = sqlx::query_scalar(asked).fetch_one(db.pool()).await.unwrap();
    assert_eq!(body, unknown.as_bytes(), "kept as it came");
    let body = json!({"id": "evt_3", "type": "payment_intent.succeeded", "data": {"object": {"id": "pi_9",
        "amount_received": 5, "currency": "eur", "metadata": {"onehold_order": 1001}}}})
    .to_string();
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], body.as_bytes())).await;
    assert_eq!(kept(&db).await, (4, 2));
    let asked = "select outcome from onehold.payment_events where event_id = 'evt_3'";
    let outcome: String = sqlx::query_scalar(asked).fetch_one(db.pool()).await.unwrap();
    assert_eq!(outcome, "names_no_order");
}

#[tokio::test]
async fn a_database_that_is_down_is_a_503_and_the_provider_tries_again() {
    let (db, served) = served().await;
    let body = stripe_event("evt_1");
    // A port on which nobody listens any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let down = Db::connect_lazy(&format!("postgres://postgres@127.0.0.1:{port}/none"), 2).unwrap();
    let without = Served::start(&down).await;
    for request in [
        stripe(&without, "main", STRIPE_SECRETS[0], body.as_bytes()),
        standard(&without, "main", STANDARD_SECRETS[0], "msg_1", &standard_event()),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 503);
        assert!(response.headers().contains_key("retry-after"));
        let text = response.text().await.unwrap();
        assert!(text.contains("/unavailable") && !text.contains("received"), "{text}");
    }
    accepted(stripe(&served, "main", STRIPE_SECRETS[0], body.as_bytes())).await;
    assert_eq!(kept(&db).await, (1, 1));

    // One that goes away between two events.
    let name = db.options().get_database().unwrap().to_owned();
    let mut elsewhere = db.options().clone().database("postgres").connect().await.unwrap();
    for away in [
        format!("alter database {name} with allow_connections false"),
        format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"),
    ] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(away)).execute(&mut elsewhere).await.unwrap();
    }
    problem(stripe(&served, "main", STRIPE_SECRETS[0], stripe_event("evt_2").as_bytes()), 503, "unavailable").await;
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_secret_no_signature_and_nothing_of_the_body_is_logged() {
    // In a process of its own: whether a place in the code logs at all is decided once for all threads, and the
    // other tests have nobody who listens.
    if second_role().is_none() {
        let me = "payments_webhooks::no_secret_no_signature_and_nothing_of_the_body_is_logged";
        let mut alone = Running::start(&mut in_second_role(me, std::path::Path::new("alone")));
        let status = alone.wait(std::time::Duration::from_secs(120)).await;
        assert!(status.success(), "{}", alone.errors().await);
        return;
    }
    let log = Log::default();
    let writer = log.clone();
    // This test runs on one thread, the web app included, so that the subscriber of this thread hears all.
    let heard = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _heard = tracing::subscriber::set_default(heard);
    let (_db, served) = served().await;
    let body = stripe_event("evt_1").replace("R-1", "MARKER-OF-THE-BODY");
    let header = stripe_header(STRIPE_SECRETS[0], now(), body.as_bytes());
    let signature = header.split_once("v1=").unwrap().1.to_owned();
    for body in [body.clone(), body.clone() + " ", "MARKER-OF-THE-BODY".to_owned()] {
        let request = served.post("/webhooks/main/stripe").header("stripe-signature", &header).body(body);
        request.send().await.unwrap();
    }
    let no_event = json!({"type": "payment.failed", "data": {"order_id": ["MARKER-OF-THE-BODY"]}}).to_string();
    problem(standard(&served, "main", STANDARD_SECRETS[0], "msg_1", &no_event), 400, "invalid_event").await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("a webhook was not believed") && log.contains("is no event"), "{log}");
    for secret in [&signature, STRIPE_SECRETS[0], STRIPE_SECRETS[1], STANDARD_SECRETS[0], "MARKER-OF-THE-BODY"] {
        assert!(!log.contains(secret), "{secret}");
    }
}
