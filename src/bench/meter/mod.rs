//! What operations cost the server: statements, WAL and commits, read before and after.

pub(super) mod sql;

use std::time::{Duration, Instant};

use super::Fleet;
use super::ratio::Costs;

/// How long sessions that have ended may take to be gone; what they counted is seen only then.
const GONE_LIMIT: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Reads the server's counters.
pub(super) struct Meter<'a> {
    fleet: &'a Fleet,
    /// Sessions that were begun after it are those of the side that is measured.
    since: i64,
}

impl<'a> Meter<'a> {
    /// To be made before the side that is measured connects.
    pub(super) async fn new(fleet: &'a Fleet) -> anyhow::Result<Self> {
        Ok(Self { fleet, since: sql::clock(fleet.db.pool()).await? })
    }

    /// Begins. Statements are counted only between here and [`Meter::end`]: counting slows them down, and those
    /// most that are made of many.
    pub(super) async fn begin(&self) -> anyhow::Result<sql::Counters> {
        let pool = self.fleet.db.pool();
        if self.fleet.statements {
            sql::count_statements(pool, true).await?;
            sql::forget_statements(pool).await?;
        }
        Ok(sql::counters(pool).await?)
    }

    /// What each of `done` operations cost since.
    pub(super) async fn end(&self, from: sql::Counters, done: usize) -> anyhow::Result<Costs> {
        let pool = self.fleet.db.pool();
        let since = Instant::now();
        while sql::sessions_since(pool, self.since).await? > 0 && since.elapsed() < GONE_LIMIT {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let to = sql::counters(pool).await?;
        let each = |total: i64| total as f64 / done.max(1) as f64;
        let statements = if self.fleet.statements {
            let counted = sql::statements(pool).await?;
            sql::count_statements(pool, false).await?;
            Some(counted)
        } else {
            None
        };
        Ok(Costs {
            statements: statements.as_ref().map(|counted| each(counted.all)),
            round_trips: statements.as_ref().map(|counted| each(counted.sent)),
            wal_bytes: each(to.wal - from.wal),
            commits: each(to.commits - from.commits),
        })
    }
}
