//! Traces: from the request through the job to what is told outside, over real processes and a collector that
//! takes OTLP over HTTP; and nothing of it where no collector is named (case P4).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;

use crate::courier::endpoint;
use crate::receiver::{Receiver, ok};
use crate::scene::{Scene, one_machine};
use crate::served::{KEY, STANDARD_SECRETS, Served};
use crate::support::eventually;
use crate::support::process::{Running, free_port};

const LIMIT: Duration = Duration::from_secs(30);
const SERVER: i32 = 2;
const PRODUCER: i32 = 4;
const CONSUMER: i32 = 5;

/// What was sent to the collector, span by span.
type Told = Arc<Mutex<Vec<Span>>>;

/// A collector; gives where it listens and what it was told.
async fn collector() -> (String, Told) {
    let told = Told::default();
    let tell = Arc::clone(&told);
    let take = async move |body: Bytes| {
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let spans = request.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans);
        tell.lock().unwrap().extend(spans);
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await.unwrap() });
    (base, told)
}

/// The spans of a trace.
fn of(told: &Told, trace: &str) -> Vec<Span> {
    told.lock().unwrap().iter().filter(|span| hex::encode(&span.trace_id) == trace).cloned().collect()
}

/// The only span of this name, of this kind and as a child of that one.
fn child<'a>(spans: &'a [Span], name: &str, kind: i32, parent: &str) -> &'a Span {
    let mut named = spans.iter().filter(|span| span.name == name);
    let span = named.next().unwrap_or_else(|| panic!("no {name} among {spans:#?}"));
    assert!(named.next().is_none(), "{name} stands there twice");
    assert_eq!((span.kind, hex::encode(&span.parent_span_id).as_str()), (kind, parent), "{name}");
    span
}

fn id(span: &Span) -> String {
    hex::encode(&span.span_id)
}

fn has(span: &Span, key: &str, value: &str) -> bool {
    span.attributes.iter().any(|a| a.key == key && format!("{:?}", a.value).contains(value))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_goes_from_the_request_through_the_job_to_the_outbound_event() {
    let scene = Scene::with_machines(1).await;
    let mut receiver = Receiver::start(|_| ok()).await;
    endpoint(&scene, &receiver).await;
    let (collector, told) = collector().await;
    let port = free_port().to_string();
    let env = [
        ("DATABASE_URL", scene.test.url.clone()),
        ("RUST_LOG", "warn".to_owned()),
        ("PORT", port.clone()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector),
        ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
        ("ONEHOLD_BOOTSTRAP_KEY", KEY.to_owned()),
        ("ONEHOLD_STANDARD_WEBHOOK_SECRETS", STANDARD_SECRETS[1].to_owned()),
    ];
    let _web = Running::onehold(&["web"], env.clone());
    let _worker = Running::onehold(&["worker"], env);
    let (base, http) = (format!("http://127.0.0.1:{port}"), reqwest::Client::new());
    eventually(LIMIT, || async { http.get(format!("{base}/readyz")).send().await.is_ok() }).await;

    let (buying, paying, client) =
        ("0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d", "b7ad6b7169203331");
    let order = http.post(format!("{base}/v1/orders")).bearer_auth(KEY).header("Idempotency-Key", "k");
    let order = order.header("Prefer", "wait=20").header("traceparent", format!("00-{buying}-{client}-01"));
    let order: serde_json::Value = order.json(&one_machine()).send().await.unwrap().json().await.unwrap();
    assert_eq!(order["status"], "reserved", "{order}");
    let reserved = receiver.next().await;
    assert_eq!(reserved.kind(), "order.reserved");

    let body =
        json!({"type": "payment.succeeded", "data": {"order_id": order["id"], "payment_id": "S3CRET"}}).to_string();
    let at = chrono::Utc::now().timestamp();
    let signature = Webhook::new(STANDARD_SECRETS[1]).unwrap().sign("evt-1", at, body.as_bytes()).unwrap();
    let paid = http.post(format!("{base}/webhooks/main/standard")).header("content-type", "application/json");
    let paid =
        paid.header("webhook-id", "evt-1").header("webhook-timestamp", at).header("webhook-signature", signature);
    let paid = paid.header("traceparent", format!("00-{paying}-{client}-01")).body(body).send().await.unwrap();
    assert_eq!(paid.status(), 200);
    let converted = receiver.next().await;
    assert_eq!(converted.kind(), "order.converted");

    eventually(LIMIT, || async { of(&told, buying).len() >= 5 && of(&told, paying).len() >= 3 }).await;
    let spans = of(&told, buying);
    let request = child(&spans, "POST /v1/orders", SERVER, client);
    assert!(
        has(request, "http.response.status_code", "202") && has(request, "http.route", "/v1/orders"),
        "{request:?}"
    );
    let sent = child(&spans, "send reserve", PRODUCER, &id(request));
    let worked = child(&spans, "process reserve", CONSUMER, &id(sent));
    assert!(has(worked, "messaging.destination.name", "reserve") && has(worked, "messaging.operation.type", "process"));
    let outside = child(&spans, "send order.reserved", PRODUCER, &id(sent));
    assert_eq!(reserved.traceparent, format!("00-{buying}-{}-01", id(outside)), "the receiver can go on with it");
    child(&spans, "send order.converted", PRODUCER, &id(sent));
    assert!(converted.traceparent.contains(buying));

    let spans = of(&told, paying);
    let request = child(&spans, "POST /webhooks/{shop}/standard", SERVER, client);
    let sent = child(&spans, "send convert", PRODUCER, &id(request));
    child(&spans, "process convert", CONSUMER, &id(sent));
    let all = format!("{:?}", told.lock().unwrap());
    for secret in [KEY, STANDARD_SECRETS[1], "S3CRET", "evt-1"] {
        assert!(!all.contains(secret), "{secret} is told: {all}");
    }
}

#[tokio::test]
async fn without_a_collector_nothing_is_kept_of_a_trace() {
    let scene = Scene::with_machines(1).await;
    let web = Served::start(&scene.db).await;
    let order = web.post("/v1/orders").bearer_auth(KEY).header("Idempotency-Key", "k").json(&one_machine());
    let order = order.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_eq!(order.send().await.unwrap().status(), 202);
    assert_eq!(scene.number("select count(*) from onehold.traces").await, 0);
}

#[tokio::test]
async fn what_jobs_followed_is_forgotten_after_a_week() {
    let scene = Scene::with_machines(0).await;
    scene
        .run(
            "insert into onehold.traces (shop_id, about, traceparent, at) values
                 (1, 'key:old', 't', now() - interval '8 days'), (1, 'key:new', 't', now() - interval '6 days')",
        )
        .await;
    assert_eq!(onehold::traces::forget(scene.db.pool()).await.unwrap(), 1);
    assert_eq!(scene.number("select count(*) from onehold.traces where about = 'key:new'").await, 1);
}
