//! The embedded server: PostgreSQL's own programs, run on a private data directory for `up`, `demo` and
//! the tests. It is reached over a Unix socket; there is no TCP, and nobody but its own user and root
//! gets to the socket.
//!
//! What stands in a data directory: `lock` (held by the one process that owns it), `pg/` (PostgreSQL's
//! own), `pg.log`, and `run/` with the socket.

mod account;
mod cluster;
mod error;
mod guard;
mod install;
mod leftover;
mod lock;
mod postmaster;
mod programs;
mod sql;

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

pub use error::{NEWEST, OLDEST, ServerError};

use account::Account;
use cluster::Layout;
use error::Doing as _;
use guard::Guard;
use postmaster::Postmaster;

/// The server's only user, and its database.
const USER: &str = "onehold";
/// How long a server may take to end in good order: it writes everything to disk first.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to drop everything.
const MORE_PATIENCE: Duration = Duration::from_secs(10);

/// How often a condition that sends no signal is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a server is to be.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where everything of this server stands; made where it is missing, kept between runs.
    pub data_dir: PathBuf,
    /// The folder of the server programs; none: they are searched for.
    pub pg_bin: Option<PathBuf>,
    /// Whether what is committed survives a loss of power. Without it the server is faster, and a
    /// machine that fails takes the data with it.
    pub durable: bool,
}

/// A running server. It ends with [`Server::stop`], when it is dropped, and, whatever happens to this
/// process, by a guard that waits for its death.
#[derive(Debug)]
pub struct Server {
    postmaster: Postmaster,
    options: PgConnectOptions,
    layout: Layout,
    bin: PathBuf,
    /// Removed at the end, if the server was for one use only.
    temporary: Option<PathBuf>,
    /// Free again when this process ends, however it ends.
    lock: File,
}

impl Server {
    /// Starts the server, after making its cluster where there is none, and waits until it accepts
    /// connections. A server that a killed process left on the same data directory is stopped first.
    ///
    /// # Errors
    /// No programs, a data directory that is in use, foreign or out of reach, or a server that does not
    /// come up; each says what to do.
    pub async fn start(settings: ServerSettings) -> Result<Self, ServerError> {
        Self::start_as(settings, false).await
    }

    /// Starts a server on a data directory of its own under `parent`, or under `/tmp` if the server's user
    /// cannot get there. It is not durable, and its directory goes when it ends.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn temporary(parent: &Path, pg_bin: Option<PathBuf>) -> Result<Self, ServerError> {
        let mut answer = Self::temporary_in(parent, pg_bin.clone()).await;
        for other in ["/tmp", "/var/tmp"] {
            if !matches!(answer, Err(ServerError::NotReachable { .. })) {
                break;
            }
            answer = Self::temporary_in(Path::new(other), pg_bin.clone()).await;
        }
        answer
    }

    async fn temporary_in(parent: &Path, pg_bin: Option<PathBuf>) -> Result<Self, ServerError> {
        let name = format!("onehold-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let data_dir = parent.join(name);
        fs::DirBuilder::new().mode(0o755).create(&data_dir).doing("making the directory", &data_dir)?;
        let settings = ServerSettings { data_dir: data_dir.clone(), pg_bin, durable: false };
        let answer = Self::start_as(settings, true).await;
        if answer.is_err() {
            let _ = fs::remove_dir_all(&data_dir);
        }
        answer
    }

    async fn start_as(settings: ServerSettings, is_temporary: bool) -> Result<Self, ServerError> {
        let ServerSettings { data_dir, pg_bin, durable } = settings;
        let layout = Layout::open(&data_dir)?;
        let lock = lock::take(&layout.root).await?;
        let account = Account::choose(&layout.cluster)?;
        account.enter(&layout.root).await?;
        let made_by = layout.made_by()?;
        let cluster = made_by.map(|major| (layout.cluster.as_path(), major));
        let programs = programs::find(pg_bin.as_deref(), &account, cluster).await?;
        let temporary = is_temporary.then(|| layout.root.clone());
        let guard = Guard::start(temporary.as_deref())?;
        if made_by.is_some() {
            leftover::stop(&layout.cluster).await?;
        } else {
            tracing::info!(bin = %programs.bin.display(), user = account.name, "making a PostgreSQL cluster");
            layout.initialise(&programs, &account, durable).await?;
        }
        layout.prepare_sockets(&account)?;
        let options = options(&layout.sockets);
        let postmaster = Postmaster::start(&layout, &programs, &account, durable, guard, &options).await?;
        Ok(Self { postmaster, options, layout, bin: programs.bin, temporary, lock })
    }

    /// How to connect to the database `onehold`.
    #[must_use]
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// The same as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// The URL of another database on this server. The socket's directory stands where others have a host
    /// name, its slashes escaped.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        let host = self.layout.sockets.to_string_lossy().replace('/', "%2F");
        format!("postgres://{USER}@{host}:5432/{database}")
    }

    /// The data directory, absolute.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.layout.root
    }

    /// The folder of the server programs in use.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The server's process id, while it is not known to have ended.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.postmaster.pid()
    }

    /// Comes back when the server has ended by itself, with its status. Safe to cancel.
    ///
    /// # Errors
    /// What the operating system said to the waiting.
    pub async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.postmaster.wait().await
    }

    /// Stops the server: open transactions are undone, what was committed is on disk, and its processes
    /// are gone when this comes back.
    ///
    /// # Errors
    /// A server that does not even end when it is killed.
    pub async fn stop(mut self) -> Result<(), ServerError> {
        self.postmaster.stop().await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.postmaster.end();
        if !self.layout.sockets.starts_with(&self.layout.root) {
            let _ = fs::remove_dir(&self.layout.sockets);
        }
        if let Some(dir) = self.temporary.take() {
            let _ = fs::remove_dir_all(dir);
        }
        // Not left to the closing of the file: a child of ours that is being born shares it.
        let _ = self.lock.unlock();
    }
}

fn options(sockets: &Path) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(sockets)
        .port(5432)
        .username(USER)
        .database(USER)
        .ssl_mode(PgSslMode::Disable)
}
