//! The web app on a port of its own, asked over real HTTP.

use std::str::FromStr as _;

use onehold::config::{Secret, ShopSecrets};
use onehold::db::{Db, Notices};
use onehold::shops::{self, Scope, keys};
use onehold::web::{self, AppState};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The key of shop `main` with every scope.
pub(crate) const KEY: &str = "test-bootstrap-key";
/// The secrets of shop `main`; the first of each is the one that is being rotated out.
pub(crate) const STRIPE_SECRETS: [&str; 2] = ["whsec_stripe_old", "whsec_stripe_new"];
pub(crate) const STANDARD_SECRETS: [&str; 2] =
    ["whsec_b2xkIHNlY3JldCBvZiB0aGUgc2hvcA==", "whsec_bmV3IHNlY3JldCBvZiB0aGUgc2hvcA=="];

/// A running web app; it ends with this.
pub(crate) struct Served {
    pub(crate) base: String,
    pub(crate) client: Client,
    _ends: DropGuard,
}

impl Served {
    pub(crate) async fn start(db: &Db) -> Self {
        let all = |secrets: [&str; 2]| secrets.into_iter().map(secret).collect();
        let secrets = ShopSecrets {
            bootstrap_key: Some(secret(KEY)),
            stripe_webhook_secrets: all(STRIPE_SECRETS),
            standard_webhook_secrets: all(STANDARD_SECRETS),
        };
        let shutdown = CancellationToken::new();
        let app = web::app(AppState::new(db.clone(), Notices::start(db), &secrets, shutdown.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(web::serve(listener, app, shutdown.clone()));
        Self { base, client: Client::new(), _ends: shutdown.drop_guard() }
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.base.clone() + path).bearer_auth(KEY)
    }

    pub(crate) fn put(&self, path: &str) -> RequestBuilder {
        self.client.put(self.base.clone() + path).bearer_auth(KEY)
    }

    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(self.base.clone() + path)
    }

    pub(crate) fn delete(&self, path: &str) -> RequestBuilder {
        self.client.delete(self.base.clone() + path).bearer_auth(KEY)
    }
}

fn secret(text: &str) -> Secret {
    Secret::from_str(text).unwrap()
}

/// The answer's status and JSON.
pub(crate) async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, json(response).await)
}

async fn json(response: Response) -> Value {
    let bytes = response.bytes().await.unwrap();
    if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() }
}

/// The answer is a problem of this status and code; gives the rest of it.
pub(crate) async fn problem(request: RequestBuilder, status: u16, code: &str) -> Value {
    let response = request.send().await.unwrap();
    let got = response.status().as_u16();
    let kind = response.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let body = json(response).await;
    assert_eq!((got, kind.as_str()), (status, "application/problem+json"), "{body}");
    assert!(body["type"].as_str().unwrap().ends_with(&format!("/{code}")), "{body}");
    body
}

/// Another shop, with a key of these scopes.
pub(crate) async fn shop_with_key(db: &Db, name: &str, scopes: &[Scope]) -> (shops::Shop, String) {
    shops::create(db, name).await.unwrap();
    let shop = shops::find(db, name).await.unwrap().unwrap();
    let keys::Created::New(key) = keys::create(db, &shop, "k", scopes).await.unwrap() else { panic!("no key") };
    (shop, key)
}
