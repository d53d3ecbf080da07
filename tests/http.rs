//! A web process as a client meets it: a listener on a free port, a real database behind it, and what was
//! written into it.

use std::net::SocketAddr;
use std::time::Duration;

use onehold::config::ShopSecrets;
use onehold::db::{Db, Notice, Notices};
use onehold::shops::{Scope, Shop, keys};
use onehold::web::{AppState, app, serve};
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::database;

/// The bootstrap key of every test.
pub(crate) const KEY: &str = "test-bootstrap-key";
/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(40);

/// A running web process.
pub(crate) struct Web {
    pub(crate) db: Db,
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    pub(crate) serving: JoinHandle<std::io::Result<()>>,
    client: reqwest::Client,
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Web {
    /// On a database of its own.
    pub(crate) async fn start() -> Self {
        let db = database().await.db;
        let notices = Notices::start(&db);
        let mut heard = notices.subscribe();
        let web = Self::on(db, notices).await;
        // From then on no notice is lost.
        let listening = async { while heard.recv().await.unwrap() != Notice::Missed {} };
        tokio::time::timeout(PATIENCE, listening).await.unwrap();
        web
    }

    /// On a database that need not be there.
    pub(crate) async fn on(db: Db, notices: Notices) -> Self {
        let secrets = ShopSecrets { bootstrap_key: Some(KEY.parse().unwrap()), ..ShopSecrets::default() };
        let shutdown = CancellationToken::new();
        let state = AppState::new(db.clone(), notices, &secrets, shutdown.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, app(state), shutdown.clone()));
        let client = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
        Self { db, address, shutdown, serving, client }
    }

    /// A request without a key.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.bare(Method::GET, path).bearer_auth(KEY)
    }

    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.bare(Method::POST, path).bearer_auth(KEY)
    }

    /// A placement.
    pub(crate) fn order(&self, key: &str, body: &Value) -> RequestBuilder {
        self.post("/v1/orders").header("Idempotency-Key", key).json(body)
    }

    /// Places an order for one machine and gives its id.
    pub(crate) async fn placed(&self, key: &str) -> String {
        let answer = send(self.order(key, &one_machine())).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.body["id"].as_str().unwrap().to_owned()
    }

    /// A key of a shop.
    pub(crate) async fn key(&self, shop: &Shop, name: &str, scopes: &[Scope]) -> String {
        match keys::create(&self.db, shop, name, scopes).await.unwrap() {
            keys::Created::New(key) => key,
            other => panic!("{other:?}"),
        }
    }

    /// Runs statements typed by hand.
    pub(crate) async fn run(&self, statements: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(self.db.pool()).await.unwrap();
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(self.db.pool()).await.unwrap()
    }

    /// How many rows a request can have left behind.
    pub(crate) async fn written(&self) -> i64 {
        self.number(
            "select (select count(*) from onehold.orders) + (select count(*) from onehold.order_lines)
                  + (select count(*) from onehold.order_events) + (select count(*) from apalis.jobs)
                  + (select count(*) from onehold.assets)",
        )
        .await
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Answer {
    /// Reads a problem: its code, and the pointers of its errors. Whatever is no success must be one.
    pub(crate) fn problem(&self) -> (u16, &str, Vec<&str>) {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let status = self.status.as_u16();
        assert_eq!(self.body["status"], status, "{self:?}");
        for member in ["title", "detail"] {
            assert!(self.body[member].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        }
        let code = self.body["type"].as_str().and_then(|uri| uri.rsplit('/').next()).unwrap();
        let errors = self.body["errors"].as_array().into_iter().flatten();
        (status, code, errors.map(|error| error["pointer"].as_str().unwrap()).collect())
    }

    /// The problem's status and code.
    pub(crate) fn code(&self) -> (u16, &str) {
        let (status, code, _) = self.problem();
        (status, code)
    }
}

/// Sends a request and reads the whole answer.
pub(crate) async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{status} {error}: {text}"));
    Answer { status, headers, body }
}

/// The body of an order for one machine.
pub(crate) fn one_machine() -> Value {
    json!({"lines": [{"asset": {"category": "box"}}]})
}
