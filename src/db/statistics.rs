//! The planner's statistics of tables that grow fast.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Db, sql};

/// How often is looked. A table of some pages grows by a few thousand rows in that time, which a wrong plan still reads
/// in a few milliseconds; a look costs one statement and no read of a table.
const INTERVAL: Duration = Duration::from_secs(1);
/// Tables a look: there are some forty.
const MOST: usize = 50;

/// Gathers the statistics of every table that is more than twice as large as when they were gathered last, and gives
/// their names. Without it a session keeps the plans that it made while its tables were nearly empty, until autovacuum
/// comes by; see `onehold.analyze_what_grew`.
///
/// # Errors
/// The database's.
pub async fn analyze_what_grew(db: &Db) -> Result<Vec<String>, sqlx::Error> {
    let mut analyzed = Vec::new();
    while analyzed.len() < MOST {
        match sql::analyze_what_grew(db.pool()).await? {
            // One that is locked by a vacuum stays as it is, and comes up again: it gets its statistics there.
            Some(table) if !analyzed.contains(&table) => analyzed.push(table),
            Some(_) | None => break,
        }
    }
    Ok(analyzed)
}

/// Does so every second until `shutdown`.
pub async fn keep_statistics(db: &Db, shutdown: &CancellationToken) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        match analyze_what_grew(db).await {
            Ok(tables) if tables.is_empty() => {}
            Ok(tables) => debug!(?tables, "tables have grown, and their statistics are gathered anew"),
            Err(error) => warn!(%error, "the statistics of tables that grow could not be gathered"),
        }
    }
}
