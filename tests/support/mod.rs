//! What tests stand on: a real PostgreSQL with a database of its own for each test, and the small tools
//! that several of them need. The only place where tests read the environment.

#![allow(dead_code, reason = "tools are here for every behaviour test, and not every one is in use at all times")]

pub(crate) mod chromium;
pub(crate) mod process;
pub(crate) mod waiting;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use onehold::db::Db;
use onehold::db::server::Server;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;

pub(crate) use waiting::eventually;

static HOST: OnceCell<Host> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);
/// Databases whose tests are over; the next test drops them. Kept to the end, a few hundred databases are
/// gigabytes.
static FINISHED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Every test's pool comes out of the server's 200 connections.
const CONNECTIONS: u32 = 10;

/// A migrated database that only this test knows.
pub(crate) struct Database {
    pub(crate) db: Db,
    pub(crate) url: String,
}

/// The server that the tests of this process share, and its migrated template.
struct Host {
    server: Which,
    template: String,
}

enum Which {
    /// Started by the first test that needs it. Never dropped: its guard stops it, and removes its data,
    /// when this process is gone, be it by a panic or a signal.
    Ours(Box<Server>),
    /// Named by `ONEHOLD_TEST_SERVER`: `postgres://user@host:port`.
    Theirs(String),
}

impl Host {
    async fn start() -> Self {
        let server = match std::env::var("ONEHOLD_TEST_SERVER") {
            Ok(url) => Which::Theirs(url),
            Err(_) => Which::Ours(Box::new(Server::temporary(&std::env::temp_dir(), pg_bin()).await.unwrap())),
        };
        let host = Self { server, template: format!("t{}", std::process::id()) };
        let mut admin = PgConnection::connect(&host.url_of("postgres")).await.unwrap();
        run(&mut admin, &format!("create database {}", host.template)).await;
        let db = Db::connect(&host.url_of(&host.template), 2).await.unwrap();
        onehold::db::migrate(&db, onehold::queue::migrations()).await.unwrap();
        // A template must have no visitors.
        db.pool().close().await;
        host
    }

    fn url_of(&self, database: &str) -> String {
        match &self.server {
            Which::Ours(server) => server.url_of(database),
            Which::Theirs(url) => format!("{url}/{database}"),
        }
    }

    async fn create(&self, options: &str) -> String {
        let mut admin = PgConnection::connect(&self.url_of("postgres")).await.unwrap();
        let finished = std::mem::take(&mut *FINISHED.lock().unwrap());
        for name in finished {
            run(&mut admin, &format!("drop database if exists {name} with (force)")).await;
        }
        let name = format!("{}_{}", self.template, NEXT.fetch_add(1, Ordering::Relaxed));
        run(&mut admin, &format!("create database {name} {options}")).await;
        admin.close().await.unwrap();
        // Each test has a runtime of its own, which drops its tasks when the test is over.
        let until_the_test_is_over = InUse(name.clone());
        tokio::spawn(async move {
            let _database = until_the_test_is_over;
            std::future::pending::<()>().await;
        });
        self.url_of(&name)
    }
}

/// A database that a test works with.
struct InUse(String);

impl Drop for InUse {
    fn drop(&mut self) {
        FINISHED.lock().unwrap().push(std::mem::take(&mut self.0));
    }
}

async fn run(conn: &mut PgConnection, statement: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(conn).await.unwrap();
}

async fn host() -> &'static Host {
    HOST.get_or_init(Host::start).await
}

/// Makes a database from the migrated template.
pub(crate) async fn database() -> Database {
    let host = host().await;
    let url = host.create(&format!("template {}", host.template)).await;
    Database { db: Db::connect(&url, CONNECTIONS).await.unwrap(), url }
}

/// Makes a database without any migration and gives its URL.
pub(crate) async fn empty_database() -> String {
    host().await.create("").await
}

/// The folder of PostgreSQL's server programs that the tests were told to use, if any.
pub(crate) fn pg_bin() -> Option<PathBuf> {
    std::env::var_os("ONEHOLD_PG_BIN").map(PathBuf::from)
}

/// An empty directory that goes with its handle. Other users can pass through it, as a server that root
/// starts must.
pub(crate) fn room() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let open = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix("onehold-test-").permissions(open).tempdir().unwrap()
}

/// How many random sequences a property test runs: few enough for every run of the tests, or as many as
/// `ONEHOLD_TEST_CASES` says.
pub(crate) fn cases() -> u32 {
    std::env::var("ONEHOLD_TEST_CASES").map_or(60, |cases| cases.parse().expect("ONEHOLD_TEST_CASES is a number"))
}
