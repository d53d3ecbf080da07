//! The connections of those who watch: few, and apart from those that sell, so that a question of an operator
//! neither waits for orders nor keeps one waiting.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::db::Db;

/// How long the server works on one question.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST_CONNECTIONS: u32 = 3;
/// Nobody watches most of the time.
const IDLE: Duration = Duration::from_secs(60);

/// A pool of at most three connections, on which a statement ends after two seconds. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Watch(PgPool);

impl Watch {
    /// Connects at first use.
    #[must_use]
    pub fn of(db: &Db) -> Self {
        // Every question finds what it asks for by an index, and must go on to do so while the statistics say
        // that a table is still empty.
        let timeout = PATIENCE.as_millis().to_string();
        let options = db.options().clone().options([
            ("statement_timeout", timeout.as_str()),
            ("enable_seqscan", "off"),
            ("jit", "off"),
            ("default_transaction_read_only", "on"),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(MOST_CONNECTIONS)
            .acquire_timeout(PATIENCE)
            .idle_timeout(IDLE)
            .connect_lazy_with(options);
        Self(pool)
    }

    /// For single statements that read.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.0
    }
}
