//! The database: connecting, named transactions with retry, notifications, migrations, and the
//! embedded server.

mod batcher;
mod fault;
mod migrate;
mod notify;
pub mod server;
mod sql;
mod statistics;
mod transaction;

pub use batcher::{Batcher, Work};
pub use fault::{Fault, expect_one, is_named, violated_constraint};
pub use migrate::{MigrateError, check_schema, migrate};
pub use notify::{Notice, Notices, Notifier};
pub use statistics::{analyze_what_grew, keep_statistics};
pub use transaction::{Tx, Verdict};

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// How long one statement may run before the server ends it.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one statement may wait for a lock.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a session may sit in an open transaction before the server ends it.
pub const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a caller waits for a free connection.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle on one database: a pool whose connections carry the time limits above, and a notifier.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Db {
    pool: PgPool,
    options: PgConnectOptions,
    notifier: Notifier,
}

impl Db {
    /// Connects to `url` with at most `connections` connections.
    ///
    /// # Errors
    /// A URL that does not parse, or a server that does not answer within [`ACQUIRE_TIMEOUT`].
    pub async fn connect(url: &str, connections: u32) -> Result<Self, sqlx::Error> {
        Self::connect_with(url.parse()?, connections).await
    }

    /// As [`Db::connect`], from options; used where the server is our own.
    ///
    /// # Errors
    /// A server that does not answer within [`ACQUIRE_TIMEOUT`].
    pub async fn connect_with(options: PgConnectOptions, connections: u32) -> Result<Self, sqlx::Error> {
        let options = with_limits(options);
        let pool = pool_options(connections).connect_with(options.clone()).await?;
        Ok(Self::assemble(pool, options))
    }

    /// As [`Db::connect`], but connects at first use: for processes that must start, and answer
    /// `/healthz`, while the database is still down.
    ///
    /// # Errors
    /// A URL that does not parse.
    pub fn connect_lazy(url: &str, connections: u32) -> Result<Self, sqlx::Error> {
        let options = with_limits(url.parse()?);
        let pool = pool_options(connections).connect_lazy_with(options.clone());
        Ok(Self::assemble(pool, options))
    }

    fn assemble(pool: PgPool, options: PgConnectOptions) -> Self {
        let notifier = Notifier::start(pool.clone());
        Self { pool, options, notifier }
    }

    /// The pool, for single statements outside a transaction.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// How this handle connects: for a listener or another pool of its own.
    #[must_use]
    pub fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Sends notifications after a commit, many in one statement.
    #[must_use]
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }
}

fn with_limits(options: PgConnectOptions) -> PgConnectOptions {
    let ms = |d: Duration| d.as_millis().to_string();
    // Sent at connection start, so that they cost no round trip. Behind PgBouncer they must be set on
    // the role instead (`alter role … set statement_timeout`), as it drops start-up options.
    options.application_name("onehold").options([
        // What every statement here is written for, whatever the server's own default is.
        ("default_transaction_isolation", "read committed".to_owned()),
        ("statement_timeout", ms(STATEMENT_TIMEOUT)),
        ("lock_timeout", ms(LOCK_TIMEOUT)),
        ("idle_in_transaction_session_timeout", ms(IDLE_IN_TRANSACTION_TIMEOUT)),
    ])
}

fn pool_options(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .after_release(|conn, _| Box::pin(sql::is_clean(conn)))
}
