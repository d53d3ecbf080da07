//! Who may ask: no key or a wrong one is 401, a key without the scope 403, another shop's order 404.

use std::time::Duration;

use onehold::shops::{self, Created, Scope, Shop, keys};
use reqwest::Method;
use serde_json::json;

use crate::http::{KEY, Web, one_machine, send};
use crate::support::eventually;

/// Every call on orders, with a body that fits.
const CALLS: &[(&str, &str, &str)] = &[
    ("POST", "/v1/orders", r#"{"lines": [{"asset": {"category": "box"}}]}"#),
    ("GET", "/v1/orders", ""),
    ("GET", "/v1/orders/ID", ""),
    ("GET", "/v1/orders/ID/events", ""),
    ("POST", "/v1/orders/ID/cancel", "{}"),
    ("POST", "/v1/orders/ID/extend", r#"{"hold_seconds": 60}"#),
    ("POST", "/v1/orders/ID/release", "{}"),
    ("POST", "/v1/availability", r#"{"lines": [{"asset": {"category": "box"}}]}"#),
];

/// Each call as `authorization` makes it, and the status and code of its answer.
async fn each(web: &Web, authorization: Option<&str>, id: &str) -> Vec<(String, u16, String)> {
    let mut answers = Vec::new();
    for (method, path, body) in CALLS {
        let path = path.replace("ID", id);
        let mut request = web.bare(method.parse().unwrap(), &path).header("Idempotency-Key", "each").body(*body);
        if let Some(authorization) = authorization {
            request = request.header("Authorization", authorization);
        }
        let answer = send(request).await;
        let (status, code) = if answer.status.is_success() { (answer.status.as_u16(), "") } else { answer.code() };
        if status == 401 {
            assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
        }
        answers.push((format!("{method} {path}"), status, code.to_owned()));
    }
    answers
}

async fn shop(web: &Web, name: &str) -> Shop {
    match shops::create(&web.db, name).await.unwrap() {
        Created::New(shop) => shop,
        other => panic!("{other:?}"),
    }
}

async fn main_shop(web: &Web) -> Shop {
    shops::find(&web.db, shops::MAIN).await.unwrap().unwrap()
}

#[tokio::test]
async fn without_a_live_key_nothing_is_answered_or_written() {
    let web = Web::start().await;
    let id = web.placed("mine").await;
    let before = web.written().await;
    let revoked = web.key(&main_shop(&web).await, "old", &[Scope::Orders]).await;
    assert_eq!(keys::revoke(&web.db, 1, "old").await.unwrap(), keys::Revoked::Done);
    let guess = format!("Bearer oh_main_{}", "0".repeat(64));
    let revoked = format!("Bearer {revoked}");
    let basic = format!("Basic {KEY}");
    for authorization in [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some(KEY),
        Some(basic.as_str()),
        Some("Bearer test-bootstrap-ke"),
        Some("Bearer test-bootstrap-keys"),
        Some(guess.as_str()),
        Some("Bearer oh_nowhere_0"),
        Some(revoked.as_str()),
    ] {
        for (call, status, code) in each(&web, authorization, &id).await {
            assert_eq!((status, code.as_str()), (401, "unauthorized"), "{call} as {authorization:?}");
        }
    }
    assert_eq!(web.written().await, before);
}

/// Callers are remembered for 5 s, and no longer.
#[tokio::test]
async fn a_key_that_is_revoked_while_it_is_used_is_soon_refused() {
    let web = Web::start().await;
    let key = web.key(&main_shop(&web).await, "soon", &[Scope::Orders]).await;
    let ask = async || send(web.bare(Method::GET, "/v1/orders").bearer_auth(&key)).await.status.as_u16();
    assert_eq!(ask().await, 200);
    keys::revoke(&web.db, 1, "soon").await.unwrap();
    // Asking all the time does not keep it alive.
    eventually(Duration::from_secs(10), async || ask().await == 401).await;
}

#[tokio::test]
async fn a_key_without_the_scope_is_refused() {
    let web = Web::start().await;
    let id = web.placed("mine").await;
    let key = web.key(&main_shop(&web).await, "stock", &[Scope::Stock, Scope::Ops]).await;
    let before = web.written().await;
    for (call, status, code) in each(&web, Some(&format!("Bearer {key}")), &id).await {
        assert_eq!((status, code.as_str()), (403, "forbidden"), "{call}");
    }
    assert_eq!(web.written().await, before);
}

#[tokio::test]
async fn a_key_with_the_scope_acts_under_its_name() {
    let web = Web::start().await;
    let key = web.key(&main_shop(&web).await, "web-app", &[Scope::Orders]).await;
    let order = web.bare(Method::POST, "/v1/orders").bearer_auth(&key).header("Idempotency-Key", "k");
    let placed = send(order.json(&one_machine())).await;
    assert_eq!(placed.status, 202);
    let path = format!("/v1/orders/{}/events", placed.body["id"].as_str().unwrap());
    let events = send(web.bare(Method::GET, &path).bearer_auth(&key)).await;
    assert_eq!(events.body["data"][0]["actor"], "api:web-app");
    // The bootstrap key is of the same shop.
    assert_eq!(send(web.get(&path)).await.status, 200);
}

#[tokio::test]
async fn another_shop_s_order_is_not_found_and_not_touched() {
    let web = Web::start().await;
    let id = web.placed("mine").await;
    let key = web.key(&shop(&web, "other").await, "other", &[Scope::Orders]).await;
    let authorization = format!("Bearer {key}");
    let before = send(web.get(&format!("/v1/orders/{id}"))).await.body;
    for (call, status, code) in each(&web, Some(&authorization), &id).await {
        let own = call == "POST /v1/orders" || call == "GET /v1/orders" || call == "POST /v1/availability";
        if own {
            assert!(status == 202 || status == 200, "{call}: {status}");
        } else {
            assert_eq!((status, code.as_str()), (404, "not_found"), "{call}");
        }
    }
    assert_eq!(send(web.get(&format!("/v1/orders/{id}"))).await.body, before);
    // The other shop sees its own order only, and the same idempotency key is another one there.
    let list = send(web.bare(Method::GET, "/v1/orders").bearer_auth(&key)).await;
    assert_eq!(list.body["data"].as_array().unwrap().len(), 1);
    assert_ne!(list.body["data"][0]["id"], json!(id));
}

#[tokio::test]
async fn keys_are_listed_without_what_would_let_anyone_use_them() {
    let web = Web::start().await;
    let main = main_shop(&web).await;
    let key = web.key(&main, "a", &[Scope::Stock, Scope::Orders, Scope::Stock]).await;
    let create = async |name: &str, scopes: &[Scope]| keys::create(&web.db, &main, name, scopes).await.unwrap();
    assert_eq!(create("a", &[Scope::Ops]).await, keys::Created::NameTaken);
    assert_eq!(create("b", &[]).await, keys::Created::NoScope);
    assert_eq!(create("bootstrap", &[Scope::Ops]).await, keys::Created::BadName);
    let listed = keys::list(&web.db, main.id).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].scopes, ["orders", "stock"]);
    assert!(!format!("{listed:?}").contains(key.rsplit('_').next().unwrap()));
    assert_eq!(web.number("select count(*) from onehold.api_keys where encode(hash, 'hex') <> ''").await, 1);
    assert_eq!(keys::authenticate(&web.db, &key).await.unwrap().unwrap().key_name, "a");
    assert_eq!(keys::revoke(&web.db, main.id, "a").await.unwrap(), keys::Revoked::Done);
    assert_eq!(keys::revoke(&web.db, main.id, "a").await.unwrap(), keys::Revoked::Before);
    assert_eq!(keys::revoke(&web.db, main.id, "z").await.unwrap(), keys::Revoked::NoSuchKey);
    assert_eq!(keys::authenticate(&web.db, &key).await.unwrap(), None);
    // A revoked key's name is free again.
    assert!(matches!(create("a", &[Scope::Ops]).await, keys::Created::New(_)));
}

#[tokio::test]
async fn shops_are_opened_once_and_found_by_name() {
    let web = Web::start().await;
    let other = shop(&web, "other").await;
    assert_eq!(shops::create(&web.db, "other").await.unwrap(), Created::NameTaken);
    assert_eq!(shops::create(&web.db, "No Name").await.unwrap(), Created::BadName);
    assert_eq!(shops::find(&web.db, "other").await.unwrap(), Some(other));
    assert_eq!(shops::find(&web.db, "nul\0").await.unwrap(), None);
    let names: Vec<_> = shops::list(&web.db).await.unwrap().into_iter().map(|shop| shop.name).collect();
    assert_eq!(names, ["main", "other"]);
}

#[tokio::test]
async fn a_webhook_secret_of_the_database_ends_when_its_time_is_over() {
    let web = Web::start().await;
    let other = shop(&web, "other").await;
    web.run(&format!(
        "insert into onehold.webhook_secrets (shop_id, provider, secret, valid_until) values
            ({0}, 'stripe', 'new', null), ({0}, 'stripe', 'old', now() + interval '1 hour'),
            ({0}, 'stripe', 'gone', now() - interval '1 second'), ({0}, 'standard', 'else', null),
            (1, 'stripe', 'of another shop', null)",
        other.id
    ))
    .await;
    let settings = shops::WebhookSecrets::new(vec!["env".into(), String::new()], vec![]);
    let mut secrets = settings.of(&web.db, &other, "stripe").await.unwrap();
    secrets.sort_unstable();
    assert_eq!(secrets, ["new", "old"]);
    let main = main_shop(&web).await;
    assert_eq!(settings.of(&web.db, &main, "stripe").await.unwrap(), ["env"]);
    assert!(settings.of(&web.db, &main, "standard").await.unwrap().is_empty());
}
