//! The document of the API says what the API does: each route stands in it, and real answers fit it.

use std::collections::BTreeSet;
use std::path::Path;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::http::{Web, one_machine};

async fn document(web: &Web) -> Value {
    let response = web.bare(Method::GET, "/openapi.json").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    response.json().await.unwrap()
}

/// `METHOD path` of every route that the sources name.
fn routes() -> BTreeSet<String> {
    fn sources(dir: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                found.push(text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned());
            }
        }
    }
    let mut texts = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/web"), &mut texts);
    let mut routes = BTreeSet::new();
    for part in texts.iter().flat_map(|text| text.split(".route(\"").skip(1)) {
        let (path, rest) = part.split_once('"').unwrap();
        // What stands behind it up to the next route, or the statement's end.
        let methods = rest.split(".route(").next().unwrap().split(['}', ';', '\n']).next().unwrap();
        for method in ["get", "post", "put", "patch", "delete"] {
            if methods.contains(&format!("{method}(")) {
                routes.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    routes
}

#[tokio::test]
async fn each_route_stands_in_the_document_and_no_other() {
    let web = Web::start().await;
    let document = document(&web).await;
    let mut told = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            told.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    // The operators' own pages are no API.
    let routes: BTreeSet<_> = routes().into_iter().filter(|route| !route.contains(" /ops")).collect();
    assert!(routes.len() > 15, "{routes:?}");
    assert_eq!(told, routes);
}

/// Sends it, and compares the answer with what the document says of it.
async fn fits(document: &Value, path: &str, method: &str, request: RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16().to_string();
    let kind = response.headers().get("content-type").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    let text = response.text().await.unwrap();
    let responses = &document["paths"][path][method]["responses"];
    let told = responses.get(&status).unwrap_or(&responses["default"]);
    assert!(status.starts_with('2') == responses.get(&status).is_some(), "{method} {path}: {status} {text}");
    if text.is_empty() {
        assert!(told.get("content").is_none());
        return Value::Null;
    }
    let body: Value = serde_json::from_str(&text).unwrap();
    check(document, &told["content"][&kind]["schema"], &body, &format!("{method} {path} {status}"));
    body
}

/// The part of JSON Schema that the document uses. A field that it does not tell is a fault.
fn check(document: &Value, schema: &Value, value: &Value, at: &str) {
    assert!(schema.is_object(), "{at}: the document tells nothing of {value}");
    if let Some(name) = schema["$ref"].as_str() {
        let told = document.pointer(&name[1..]).unwrap_or_else(|| panic!("{name}"));
        return check(document, told, value, at);
    }
    if let Some(either) = schema["oneOf"].as_array() {
        let of_kind = |one: &&Value| (one["type"] == "null") == value.is_null();
        return check(document, either.iter().find(of_kind).unwrap_or_else(|| panic!("{at}: {value}")), value, at);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let told = &schema["type"];
    assert!(told == kind || told.as_array().is_some_and(|of| of.contains(&json!(kind))), "{at}: {value} is no {told}");
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{at}: {value}");
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        check(document, &schema["items"], item, &format!("{at}/{n}"));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(value.is_null() || value.get(required.as_str().unwrap()).is_some(), "{at}: {required} is missing");
    }
    if let Some(properties) = schema["properties"].as_object() {
        for (name, item) in value.as_object().into_iter().flatten() {
            let told = properties.get(name).unwrap_or_else(|| panic!("{at}/{name} is not told"));
            check(document, told, item, &format!("{at}/{name}"));
        }
    }
}

#[tokio::test]
async fn real_answers_are_as_the_document_says() {
    let web = Web::start().await;
    let document = document(&web).await;
    let fits = async |path: &str, method: &str, request| fits(&document, path, method, request).await;
    let put = |body| web.bare(Method::PUT, "/v1/assets/m").bearer_auth(crate::http::KEY).json(&body);
    fits("/v1/assets/{key}", "put", put(json!({"category": "box", "location": "BER", "attributes": {"a": [1]}}))).await;
    fits("/v1/assets/{key}", "put", put(json!({"category": "box", "location": "BER", "vendor": "Dell"}))).await;
    fits("/v1/assets/{key}", "put", put(json!({"x": 1}))).await;
    fits("/v1/assets/{key}", "get", web.get("/v1/assets/m")).await;
    fits("/v1/assets", "get", web.get("/v1/assets")).await;
    let movement = json!({"sku": "PSU", "location": "BER", "delta": 5, "kind": "receipt", "reference": "PO-1"});
    fits("/v1/stock/movements", "post", web.post("/v1/stock/movements").json(&movement)).await;
    fits("/v1/stock/movements", "post", web.post("/v1/stock/movements").json(&movement)).await;
    fits("/v1/stock/{sku}", "get", web.get("/v1/stock/PSU")).await;
    fits("/v1/stock/{sku}", "get", web.get("/v1/stock/none")).await;
    let cart = json!({"reference": "R-1", "payment": {"amount": 5, "currency": "EUR"}, "metadata": {"a": 1},
        "lines": [{"asset": {"category": "box"}}, {"sku": "PSU", "locations": ["BER"], "quantity": 2}]});
    fits("/v1/availability", "post", web.post("/v1/availability").json(&cart)).await;
    let placed = fits("/v1/orders", "post", web.order("1", &cart)).await;
    let order = |placed: &Value| -> (uuid::Uuid, String) {
        let id = placed["id"].as_str().unwrap();
        (id.parse().unwrap(), format!("/v1/orders/{id}"))
    };
    let (id, at) = order(&placed);
    onehold::allocator::run(&web.db, 1, id).await.unwrap();
    fits("/v1/orders", "post", web.order("1", &cart)).await;
    fits("/v1/orders", "post", web.order("1", &one_machine())).await;
    let (refused, refused_at) = order(&fits("/v1/orders", "post", web.order("2", &one_machine())).await);
    onehold::allocator::run(&web.db, 1, refused).await.unwrap();
    assert_eq!(fits("/v1/orders/{id}", "get", web.get(&refused_at)).await["refusal"]["kind"], "held");
    fits("/v1/availability", "post", web.post("/v1/availability").json(&one_machine())).await;
    fits("/v1/assets/{key}", "delete", web.bare(Method::DELETE, "/v1/assets/m").bearer_auth(crate::http::KEY)).await;
    fits("/v1/orders/{id}/extend", "post", web.post(&format!("{at}/extend")).json(&json!({"hold_seconds": 900}))).await;
    fits("/v1/orders/{id}/release", "post", web.post(&format!("{at}/release"))).await;
    fits("/v1/orders/{id}/cancel", "post", web.post(&format!("{at}/cancel")).json(&json!({"reason": "x"}))).await;
    fits("/v1/orders/{id}", "get", web.get(&at)).await;
    fits("/v1/orders/{id}/events", "get", web.get(&format!("{at}/events"))).await;
    fits("/v1/orders", "get", web.get("/v1/orders?limit=1")).await;
    fits("/v1/orders", "get", web.get("/v1/orders?limit=0")).await;
    fits("/v1/assets/{key}", "delete", web.bare(Method::DELETE, "/v1/assets/m").bearer_auth(crate::http::KEY)).await;
    fits("/webhooks/{shop}/stripe", "post", web.post("/webhooks/main/stripe")).await;
    fits("/healthz", "get", web.get("/healthz")).await;
    fits("/readyz", "get", web.get("/readyz")).await;
}

#[tokio::test]
async fn the_page_asks_nobody_for_anything() {
    let web = Web::start().await;
    let response = web.bare(Method::GET, "/docs").send().await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(response.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    let html = response.text().await.unwrap();
    assert!(html.contains("POST /v1/orders") && html.contains("Idempotency-Key"));
    for outside in ["http://", "https://", "<script", "src="] {
        assert!(!html.contains(outside), "{outside}");
    }
}
