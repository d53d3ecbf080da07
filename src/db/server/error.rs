//! Why the embedded server cannot run, each with what to do about it.

use std::path::{Path, PathBuf};

/// Why the embedded server did not start or stop.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No usable server programs on this machine.
    #[error(
        "no PostgreSQL server programs (versions {OLDEST} to {NEWEST}) were found{found}; install them with: {install}",
        found = listed(.unusable)
    )]
    NoPrograms {
        /// What was found and why it will not do.
        unusable: Vec<String>,
        /// The one command that installs them on this system.
        install: String,
    },
    /// The folder that was named does not hold usable programs.
    #[error(
        "ONEHOLD_PG_BIN: {why}; name a folder with PostgreSQL's server programs, or unset it, or install them with: {install}"
    )]
    NamedPrograms {
        /// What is wrong with the folder.
        why: String,
        /// The one command that installs usable ones on this system.
        install: String,
    },
    /// The data directory was made by another major version than any program found.
    #[error(
        "{} was made by PostgreSQL {made_by}, and no server programs of that version were found{found}; \
         install PostgreSQL {made_by}, name its programs with ONEHOLD_PG_BIN, or choose another data directory",
        .cluster.display(), found = listed(.unusable)
    )]
    OtherVersion {
        /// The data directory.
        cluster: PathBuf,
        /// The major version that made it.
        made_by: u32,
        /// What was found instead.
        unusable: Vec<String>,
    },
    /// Another process runs on this data directory.
    #[error("{} runs on the data directory {} already; stop it, or choose another data directory", process(.pid), .data_dir.display())]
    InUse {
        /// The data directory.
        data_dir: PathBuf,
        /// The process that has it, if it said.
        pid: Option<u32>,
    },
    /// Root has nobody to hand the server to.
    #[error(
        "PostgreSQL does not run as root, and this machine has neither a user postgres nor a user nobody; add one, or run as an ordinary user"
    )]
    NoAccount,
    /// The user whom root hands the server to cannot get to the data directory.
    #[error(
        "PostgreSQL does not run as root, so it runs as user {user}, who cannot enter {}; choose a data directory \
         that {user} can reach (such as /var/lib/onehold), open the way with `chmod o+x {}`, or run as an ordinary user",
        .closed.display(), .closed.display()
    )]
    NotReachable {
        /// The user.
        user: String,
        /// The first directory on the way that is closed to it.
        closed: PathBuf,
    },
    /// The data belongs to someone else.
    #[error("{} belongs to user {owner}; run as that user or as root, or choose another data directory", .path.display())]
    NotOurs {
        /// What belongs to someone else.
        path: PathBuf,
        /// The owner's name, or id.
        owner: String,
    },
    /// Something stands where the data should be.
    #[error("{} is there, but is no PostgreSQL data directory; move it away, or choose another data directory", .path.display())]
    NotACluster {
        /// What stands there.
        path: PathBuf,
    },
    /// `initdb` failed.
    #[error("initdb failed: {output}")]
    Initdb {
        /// What it said.
        output: String,
    },
    /// The server ended, or did not accept connections in time.
    #[error("the PostgreSQL server {why}; the end of {}:\n{tail}", .log.display())]
    DidNotStart {
        /// What happened.
        why: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log since this start.
        tail: String,
    },
    /// A server would not end, even when told to drop everything.
    #[error("the PostgreSQL server with the process id {pid} does not stop")]
    DidNotStop {
        /// The server's process.
        pid: i32,
    },
    /// The operating system said no.
    #[error("{doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// The answer.
        source: std::io::Error,
    },
    /// The server runs but did not do what was asked.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
}

/// The oldest major version of PostgreSQL that Onehold runs on.
pub const OLDEST: u32 = 15;
/// The newest that it was tried on.
pub const NEWEST: u32 = 18;

fn listed(unusable: &[String]) -> String {
    if unusable.is_empty() { String::new() } else { format!(" ({})", unusable.join("; ")) }
}

fn process(pid: &Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("another onehold (process {pid})"))
}

/// Names what was tried where the operating system says no.
pub(super) trait Doing<T> {
    /// Wraps the error with what was tried and the path it was tried on.
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, ServerError>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, ServerError> {
        self.map_err(|source| ServerError::Io { doing, path: path.to_owned(), source })
    }
}
