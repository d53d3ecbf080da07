//! What a database error means: which constraint it names, and whether trying again can help.

use std::error::Error as _;

/// Why a transaction failed. A fault always rolls back; an honest "no" is not a fault but an answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The database said no, or could not be reached.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// Anything else that must undo the transaction.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl Fault {
    /// Whether the same transaction, run again from its start, can succeed: a serialization failure
    /// (40001) or a deadlock (40P01).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.sqlstate().as_deref(), Some("40001" | "40P01"))
    }

    /// Whether the database could not be reached at all, as distinct from having refused something.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self.sqlx() {
            Some(sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Tls(_)) => {
                true
            }
            // 57P0x: shutting down, crashed, starting up; 08: connection; 53300: too many of them.
            _ => self.sqlstate().is_some_and(|s| s.starts_with("57P") || s.starts_with("08") || s == "53300"),
        }
    }

    /// The five-character SQLSTATE, if the server gave one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<String> {
        self.sqlx()?.as_database_error()?.code().map(std::borrow::Cow::into_owned)
    }

    /// The constraint that was violated, searched through the whole chain of sources.
    #[must_use]
    pub fn constraint(&self) -> Option<String> {
        violated_constraint(self.sqlx()?)
    }

    fn sqlx(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Database(e) => Some(e),
            Self::Other(e) => e.chain().find_map(|c| c.downcast_ref::<sqlx::Error>()),
        }
    }
}

/// The name of the constraint in `error`, wherever in its chain of sources the server's answer stands.
#[must_use]
pub fn violated_constraint(error: &sqlx::Error) -> Option<String> {
    if let Some(name) = error.as_database_error().and_then(sqlx::error::DatabaseError::constraint) {
        return Some(name.to_owned());
    }
    let mut source = error.source();
    while let Some(e) = source {
        let database = e
            .downcast_ref::<sqlx::Error>()
            .and_then(sqlx::Error::as_database_error)
            .or_else(|| e.downcast_ref::<Box<dyn sqlx::error::DatabaseError>>().map(AsRef::as_ref));
        if let Some(name) = database.and_then(sqlx::error::DatabaseError::constraint) {
            return Some(name.to_owned());
        }
        source = e.source();
    }
    None
}

/// Whether `violated` is the constraint `name`. On a shard the server appends the shard's number
/// (`one_hold_per_asset_102056`); nothing else may follow.
#[must_use]
pub fn is_named(violated: &str, name: &str) -> bool {
    match violated.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('_')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())),
        None => false,
    }
}

/// For a guarded update whose caller has locked the row and seen that the guard holds: anything but one
/// row is a broken promise, and ends the transaction.
///
/// # Errors
/// `RowNotFound` where `rows` is not 1.
pub fn expect_one(rows: u64) -> Result<(), sqlx::Error> {
    if rows == 1 { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn a_shard_number_may_follow_a_constraint_name_and_nothing_else() {
        assert!(is_named("one_hold_per_asset", "one_hold_per_asset"));
        assert!(is_named("one_hold_per_asset_102056", "one_hold_per_asset"));
        assert!(!is_named("one_hold_per_asset_", "one_hold_per_asset"));
        assert!(!is_named("one_hold_per_asset_x1", "one_hold_per_asset"));
        assert!(!is_named("one_hold_per_assets", "one_hold_per_asset"));
        assert!(!is_named("other", "one_hold_per_asset"));
    }
}
