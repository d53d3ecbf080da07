//! Every invariant, counted on the live database.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;

use super::sql;
use crate::db::{Db, Fault};

/// How long one check may take on a large database.
const PATIENCE: Duration = Duration::from_secs(600);

/// One invariant and how often it is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What must hold, in words.
    pub invariant: String,
    /// How many rows break it: 0 on a sound database.
    pub broken: i64,
    /// How many rows were looked at.
    pub looked_at: i64,
}

/// Counts each invariant, `told` as soon as it is known. Each check is one statement, so it sees one
/// moment of a database in use. Changes nothing.
///
/// # Errors
/// Faults of the database only.
pub async fn verify(db: &Db, mut told: impl FnMut(&Check)) -> Result<Vec<Check>, Fault> {
    // A connection of its own: these statements may read whole tables, which no other may.
    let patient = db.options().clone().options([("statement_timeout", PATIENCE.as_millis().to_string())]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(patient).await?;
    let mut checks = Vec::new();
    for invariant in sql::INVARIANTS {
        let (looked_at, broken) = sql::count(&pool, invariant.counted_by).await?;
        let check = Check { invariant: invariant.says.to_owned(), broken, looked_at };
        told(&check);
        checks.push(check);
    }
    pool.close().await;
    Ok(checks)
}
