//! What tests stand on: a real PostgreSQL with a database of its own for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use onehold::db::Db;
use tokio::sync::OnceCell;

static TEMPLATE: OnceCell<String> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A migrated database that only this test knows.
pub(crate) struct Database {
    pub(crate) db: Db,
    pub(crate) url: String,
}

fn server() -> String {
    std::env::var("ONEHOLD_TEST_SERVER").expect("ONEHOLD_TEST_SERVER: postgres://user@host:port")
}

async fn execute(url: &str, statement: &str) {
    let mut conn = <sqlx::PgConnection as sqlx::Connection>::connect(url).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut conn).await.unwrap();
}

/// Makes a database from the migrated template.
pub(crate) async fn database() -> Database {
    let admin = format!("{}/postgres", server());
    let template = TEMPLATE
        .get_or_init(|| async {
            let name = format!("t{}", std::process::id());
            execute(&admin, &format!("create database {name}")).await;
            let db = Db::connect(&format!("{}/{name}", server()), 2).await.unwrap();
            onehold::db::migrate(&db, onehold::queue::migrations()).await.unwrap();
            db.pool().close().await;
            name
        })
        .await;
    let name = format!("{template}_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    execute(&admin, &format!("create database {name} template {template}")).await;
    let url = format!("{}/{name}", server());
    Database { db: Db::connect(&url, 10).await.unwrap(), url }
}

/// Waits until `so` holds, looking again every few milliseconds, and fails after `limit`.
pub(crate) async fn eventually<F: Future<Output = bool>>(limit: std::time::Duration, mut so: impl FnMut() -> F) {
    let began = std::time::Instant::now();
    while !so().await {
        assert!(began.elapsed() < limit, "not so after {limit:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
