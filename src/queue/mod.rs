//! The queue: the catalogue of jobs, and the only adapter to apalis.

pub mod catalogue;

use sqlx::migrate::Migrator;

/// apalis's own migrations, for its tables in the schema `apalis`.
#[must_use]
pub fn migrations() -> Migrator {
    apalis_postgres::PostgresStorage::<()>::migrations()
}
