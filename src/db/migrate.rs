//! Migrations: the queue's own tables first, then Onehold's. Safe from several machines at once:
//! sqlx takes an advisory lock around each of the two.

use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::PgPoolOptions;

use super::{Db, sql};

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");
/// Other machines may be migrating: how long to wait for them, and for one long statement.
const PATIENCE: Duration = Duration::from_secs(600);

/// Why a database cannot be used by this binary.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database has migrations that this binary does not know.
    #[error(
        "the database is newer than this binary: it has migration {found}, this binary knows up to {known}; \
         run a newer onehold"
    )]
    Newer {
        /// The newest migration in the database.
        found: i64,
        /// The newest migration in this binary.
        known: i64,
    },
    /// The database lacks migrations.
    #[error("the database lacks {missing} migrations; run `onehold migrate`")]
    Behind {
        /// How many are missing.
        missing: usize,
    },
    /// A migration failed or was changed after it was applied.
    #[error("migration: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The database could not be reached.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
}

/// Brings the database up to this binary's schema: `queue` (the queue's own migrations) first, then
/// Onehold's, which build on them. Changes nothing where it is already there.
///
/// # Errors
/// A newer database, a migration that fails, or a database that cannot be reached.
pub async fn migrate(db: &Db, queue: Migrator) -> Result<(), MigrateError> {
    refuse_newer(db).await?;
    // Waiting for another machine's migration, and building an index, take longer than any statement of
    // the running system may.
    let patient = db.options().clone().options([
        ("statement_timeout", PATIENCE.as_millis().to_string()),
        ("lock_timeout", PATIENCE.as_millis().to_string()),
    ]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(patient).await?;
    queue.run(&pool).await?;
    let mut migrations = Migrator { migrations: MIGRATIONS.migrations.clone(), ..Migrator::DEFAULT };
    migrations.create_schema("onehold");
    migrations.dangerous_set_table_name("onehold._migrations");
    migrations.run(&pool).await?;
    pool.close().await;
    Ok(())
}

/// Whether this binary can work on this database as it stands.
///
/// # Errors
/// [`MigrateError::Newer`], [`MigrateError::Behind`], or a database that cannot be reached.
pub async fn check_schema(db: &Db) -> Result<(), MigrateError> {
    let applied = refuse_newer(db).await?;
    let missing = MIGRATIONS.iter().filter(|m| !applied.contains(&m.version)).count();
    if missing > 0 { Err(MigrateError::Behind { missing }) } else { Ok(()) }
}

async fn refuse_newer(db: &Db) -> Result<Vec<i64>, MigrateError> {
    let applied = sql::applied_migrations(db.pool()).await?;
    let known = MIGRATIONS.iter().map(|m| m.version).max().unwrap_or(0);
    match applied.last() {
        Some(&found) if found > known => Err(MigrateError::Newer { found, known }),
        _ => Ok(applied),
    }
}
