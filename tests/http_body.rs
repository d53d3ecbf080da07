//! Bodies that do not fit, over real HTTP: cases L1, L2, L4, L6 and W10. Each gets a 4xx that names what
//! is wrong where, and leaves nothing behind.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http::{KEY, Web, one_machine, send};

/// Sends `raw` as the body of an order, and gives the problem's status and code; nothing was written.
async fn refused(web: &Web, raw: impl Into<reqwest::Body>) -> (u16, String, Vec<String>) {
    let before = web.written().await;
    let request = web.post("/v1/orders").header("Idempotency-Key", "k").header("Content-Type", "application/json");
    let answer = send(request.body(raw)).await;
    let (status, code, pointers) = answer.problem();
    assert_eq!(web.written().await, before, "{answer:?}");
    (status, code.to_owned(), pointers.into_iter().map(str::to_owned).collect())
}

fn quantity(text: &str) -> String {
    format!(r#"{{"lines": [{{"asset": {{"category": "box"}}, "quantity": {text}}}]}}"#)
}

#[tokio::test]
async fn a_quantity_that_cannot_be_had_is_named_and_nothing_is_written() {
    let web = Web::start().await;
    for bad in ["0", "-5", "2147483648", "1.5", "\"2\"", "null", "101", "1e3", "9223372036854775808", "1e308"] {
        let expected = (422, "invalid_body".to_owned(), vec!["/lines/0/quantity".to_owned()]);
        assert_eq!(refused(&web, quantity(bad)).await, expected, "{bad}");
    }
    let request = web.post("/v1/orders").header("Idempotency-Key", "good").body(quantity("1e1"));
    let answer = send(request).await;
    assert_eq!((answer.status.as_u16(), &answer.body["lines"][0]["quantity"]), (202, &json!(10)), "1e1 is 10");
}

#[tokio::test]
async fn quantities_that_sum_past_what_an_integer_holds_are_refused_one_by_one() {
    let web = Web::start().await;
    let lines = vec![json!({"asset": {"category": "box"}, "quantity": 2_147_483_647}); 100];
    let (status, code, pointers) = refused(&web, json!({ "lines": lines }).to_string()).await;
    assert_eq!((status, code.as_str(), pointers.len()), (422, "invalid_body", 100));
}

#[tokio::test]
async fn every_fault_of_a_body_is_named() {
    let web = Web::start().await;
    let body = json!({"lines": [{"asset": {"category": 5}, "colour/hue": 1}, {}], "hold_seconds": "x", "who": "me"});
    let (status, code, mut pointers) = refused(&web, body.to_string()).await;
    pointers.sort_unstable();
    assert_eq!((status, code.as_str()), (422, "invalid_body"));
    assert_eq!(pointers, ["/hold_seconds", "/lines/0/asset/category", "/lines/0/colour~1hue", "/lines/1", "/who"]);
    for (body, pointer) in [(json!({"lines": []}), "/lines"), (json!({}), "/lines"), (json!([]), ""), (json!(1), "")] {
        assert_eq!(refused(&web, body.to_string()).await.2, [pointer]);
    }
    let lines = vec![json!({"asset": {"category": "box"}}); 101];
    assert_eq!(refused(&web, json!({ "lines": lines }).to_string()).await.2, ["/lines"]);
}

#[tokio::test]
async fn a_stock_line_has_fields_and_bounds_of_its_own() {
    let web = Web::start().await;
    let line = |line: Value| json!({"lines": [{"asset": {"category": "box"}}, line]}).to_string();
    for (bad, pointer) in [
        (json!({"sku": "PSU-750", "quantity": 10_001}), "/lines/1/quantity"),
        (json!({"sku": "PSU-750", "quantity": 0}), "/lines/1/quantity"),
        (json!({"sku": " ", "quantity": 2}), "/lines/1/sku"),
        (json!({"sku": "PSU-750", "split": "no"}), "/lines/1/split"),
        (json!({"sku": "PSU-750", "locations": []}), "/lines/1/locations"),
        (json!({"sku": "PSU-750", "vendor": "Dell"}), "/lines/1/vendor"),
        (json!({"sku": "PSU-750", "asset": {"category": "box"}}), "/lines/1"),
    ] {
        let expected = (422, "invalid_body".to_owned(), vec![pointer.to_owned()]);
        assert_eq!(refused(&web, line(bad)).await, expected);
    }
    // Case L2: a hundred of the largest lines are accepted, and their sum does not wrap.
    let most = json!({"lines": vec![json!({"sku": "PSU-750 ", "quantity": 10_000}); 100]});
    let answer = send(web.order("most", &most)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let shown = &answer.body["lines"][99];
    assert_eq!(
        (&shown["sku"], &shown["quantity"], &shown["split"]),
        (&json!("PSU-750"), &json!(10_000), &json!(false))
    );
}

#[tokio::test]
async fn a_nul_in_any_string_is_named_and_no_job_is_stored_that_cannot_be_read() {
    let web = Web::start().await;
    let nul = "a\u{0}b";
    let with = |field: &str, value: Value| {
        let mut body = one_machine();
        body[field] = value;
        body
    };
    let cases = [
        (with("reference", json!(nul)), "/reference"),
        (with("buyer", json!(nul)), "/buyer"),
        (with("metadata", json!({ nul: 1 })), "/metadata/a\u{0}b"),
        (with("metadata", json!({"deep": [[{"k": nul}]]})), "/metadata/deep/0/0/k"),
        (json!({"lines": [{"asset": {"category": nul}}]}), "/lines/0/asset/category"),
    ];
    for (body, pointer) in cases {
        let expected = (422, "invalid_body".to_owned(), vec![pointer.to_owned()]);
        assert_eq!(refused(&web, body.to_string()).await, expected);
    }
    // Where there is no body: a key, a cursor, a query.
    assert_eq!(send(web.get("/v1/orders?reference=a%00b")).await.code(), (400, "invalid_query"));
    assert_eq!(send(web.get("/v1/orders?cursor=00")).await.code(), (400, "invalid_query"));
    assert_eq!(send(web.get("/v1/orders/%00")).await.code(), (404, "not_found"));
    let id = web.placed("good").await;
    let answer = send(web.post(&format!("/v1/orders/{id}/cancel")).json(&json!({ "reason": nul }))).await;
    assert_eq!(answer.problem(), (422, "invalid_body", vec!["/reason"]));
}

#[tokio::test]
async fn what_is_not_json_is_refused() {
    let web = Web::start().await;
    let metadata = |inner: &str| format!(r#"{{"lines": [{{"asset": {{"category": "box"}}}}], "metadata": {inner}}}"#);
    let cases: [Vec<u8>; 9] = [
        b"".into(),
        b"{".into(),
        b"not json".into(),
        br#"{"lines": [{"asset": {"category": "box"}}]"#.into(),
        b"{\"reference\": \"\xff\xfe\"}".into(),
        metadata(r#"{"k": "\ud800"}"#).into(),
        metadata(r#"{"k": "\udc00\ud800"}"#).into(),
        metadata(&[r#"{"a":"#.repeat(200), "1".into(), "}".repeat(200)].concat()).into(),
        metadata(r#"{"k": 1e999}"#).into(),
    ];
    for body in cases {
        let text = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(refused(&web, body).await, (400, "invalid_json".to_owned(), vec![]), "{text}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"] {
        let request = web.post("/v1/orders").header("Idempotency-Key", "k").header("Content-Type", kind);
        assert_eq!(send(request.body("{}")).await.code(), (415, "unsupported_media_type"), "{kind}");
    }
    // Deep, but readable: kept as it came.
    let deep = metadata(&[r#"{"a":"#.repeat(60), "\"\u{1F600}\\ud83d\\ude00\"".into(), "}".repeat(60)].concat());
    let answer = send(web.post("/v1/orders").header("Idempotency-Key", "deep").body(deep.clone())).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.body["metadata"], serde_json::from_str::<Value>(&deep).unwrap()["metadata"]);
}

#[tokio::test]
async fn a_body_of_a_mebibyte_is_the_largest() {
    let web = Web::start().await;
    let sized = |bytes: usize| {
        let mut body = one_machine();
        body["metadata"] = json!({"filler": ""});
        let filler = bytes - body.to_string().len();
        body["metadata"]["filler"] = "x".repeat(filler).into();
        body.to_string()
    };
    let answer = send(web.post("/v1/orders").header("Idempotency-Key", "large").body(sized(1 << 20))).await;
    assert_eq!(answer.status, 202);
    assert_eq!(answer.body["metadata"]["filler"].as_str().unwrap().len(), (1 << 20) - 65);
    let began = Instant::now();
    for bytes in [(1 << 20) + 1, 10 << 20] {
        assert_eq!(refused(&web, sized(bytes)).await, (413, "body_too_large".to_owned(), vec![]));
    }
    assert!(began.elapsed() < Duration::from_secs(10));
    // On every path, and before the key is looked at.
    for path in ["/v1/assets/x", "/webhooks/main/stripe", "/nowhere"] {
        let answer = send(web.bare(Method::PUT, path).body(sized(2 << 20))).await;
        assert_eq!(answer.code(), (413, "body_too_large"), "{path}");
    }
}

/// Sends `head` and then `body` as raw bytes, and reads the answer to its end.
async fn raw(web: &Web, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(web.address).await.unwrap();
    let head = format!(
        "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nIdempotency-Key: k\r\n\
         Connection: close\r\n{head}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn a_body_of_no_announced_length_is_bounded_too() {
    let web = Web::start().await;
    let before = web.written().await;
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    let body = [chunk.repeat(10 << 4), b"0\r\n\r\n".to_vec()].concat();
    let answer = raw(&web, "Transfer-Encoding: chunked", &body).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body_too_large"), "{answer}");
    assert_eq!(web.written().await, before);
}

#[tokio::test]
async fn who_asks_for_leave_to_send_too_much_is_spared_the_sending() {
    let web = Web::start().await;
    let answer = raw(&web, "Content-Length: 10485760\r\nExpect: 100-continue", b"").await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body_too_large"), "{answer}");
}

#[tokio::test]
async fn a_body_that_breaks_off_places_nothing() {
    let web = Web::start().await;
    let before = web.written().await;
    let mut stream = TcpStream::connect(web.address).await.unwrap();
    let whole = one_machine().to_string();
    let head = format!(
        "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nIdempotency-Key: k\r\n\
         Content-Length: {}\r\n\r\n{whole}",
        whole.len() + 1
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(web.written().await, before);
}
