//! The running server: started, waited for, and stopped.

use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::process::Child;

use super::account::Account;
use super::cluster::Layout;
use super::error::{Doing as _, ServerError};
use super::guard::Guard;
use super::programs::Programs;
use super::{LOOK_AGAIN, MORE_PATIENCE, PATIENCE, sql};

/// How long a server may take until it accepts connections; after a crash it replays its log first.
const START_LIMIT: Duration = Duration::from_secs(180);
/// How long the last processes of a server that was killed may keep its shared memory.
const ORPHANS_LIMIT: Duration = Duration::from_secs(15);
/// How long dropping waits for the server; afterwards the guard goes on.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// A `postgres` of ours, and the guard that survives us.
#[derive(Debug)]
pub(super) struct Postmaster {
    /// None once it has ended.
    process: Option<Child>,
    guard: Option<Guard>,
}

impl Postmaster {
    /// Starts the server and waits until it accepts connections at `options`.
    pub(super) async fn start(
        layout: &Layout,
        programs: &Programs,
        account: &Account,
        durable: bool,
        mut guard: Guard,
        options: &PgConnectOptions,
    ) -> Result<Self, ServerError> {
        let since = Instant::now();
        loop {
            let (log, from) = layout.open_log()?;
            let process = spawn(layout, programs, account, durable, log)?;
            if let Some(pid) = process.id() {
                guard.watch(pid)?;
            }
            let mut server = Self { process: Some(process), guard: Some(guard) };
            match server.accept(options).await {
                Ok(()) => return Ok(server),
                Err(why) => {
                    server.stop().await?;
                    let tail = layout.log_since(from);
                    // The children of a server that was killed see it a moment later than we do.
                    if !tail.contains("shared memory block") || since.elapsed() > ORPHANS_LIMIT {
                        return Err(ServerError::DidNotStart { why, log: layout.log.clone(), tail });
                    }
                }
            }
            tokio::time::sleep(LOOK_AGAIN * 10).await;
            guard = Guard::start(None)?;
        }
    }

    /// Waits until the server accepts connections and has our database; otherwise says what happened.
    async fn accept(&mut self, options: &PgConnectOptions) -> Result<(), String> {
        let since = Instant::now();
        let admin = options.clone().database("postgres");
        loop {
            if let Some(status) = self.ended() {
                return Err(format!("ended while it started ({status})"));
            }
            match PgConnection::connect_with(&admin).await {
                Ok(mut conn) => {
                    sql::create_database(&mut conn).await.map_err(|error| format!("said: {error}"))?;
                    let _ = conn.close().await;
                    return Ok(());
                }
                Err(error) if since.elapsed() > START_LIMIT => {
                    return Err(format!("did not accept connections within {START_LIMIT:?} ({error})"));
                }
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// The status with which the server has ended, if it has.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.try_wait().ok().flatten()
    }

    /// The server's process id, while it is not known to have ended.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref()?.id()
    }

    /// Comes back when the server has ended by itself.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        match &mut self.process {
            Some(process) => process.wait().await,
            None => std::future::pending().await,
        }
    }

    /// Stops the server: connections are closed and open transactions undone, and what was committed is
    /// on disk. One that does not end in time is told to drop everything.
    pub(super) async fn stop(&mut self) -> Result<(), ServerError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let pid = process.id();
        for (signal, limit) in [(Signal::SIGINT, PATIENCE), (Signal::SIGQUIT, MORE_PATIENCE)] {
            send(pid, signal);
            if tokio::time::timeout(limit, process.wait()).await.is_ok() {
                self.gone();
                return Ok(());
            }
            tracing::warn!(?pid, ?signal, "the PostgreSQL server did not end within {limit:?}");
        }
        send(pid, Signal::SIGKILL);
        if tokio::time::timeout(DROP_LIMIT, process.wait()).await.is_ok() {
            self.gone();
            return Ok(());
        }
        Err(ServerError::DidNotStop { pid: pid.and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default() })
    }

    fn gone(&mut self) {
        self.process = None;
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
    }
}

impl Postmaster {
    /// Best effort, and blocking, for the ways out that cannot wait (a panic, an early return). What does
    /// not end in time is the guard's.
    pub(super) fn end(&mut self) {
        let Some(process) = &mut self.process else { return };
        send(process.id(), Signal::SIGINT);
        let since = Instant::now();
        while since.elapsed() < DROP_LIMIT {
            if !matches!(process.try_wait(), Ok(None)) {
                self.gone();
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(
    layout: &Layout,
    programs: &Programs,
    account: &Account,
    durable: bool,
    log: std::fs::File,
) -> Result<Child, ServerError> {
    let on = if durable { "on" } else { "off" };
    let program = programs.bin.join("postgres");
    let mut command = account.command(&program);
    command.arg("-D").arg(&layout.cluster);
    command.arg("-c").arg(setting("unix_socket_directories", &layout.sockets));
    for fixed in ["unix_socket_permissions=0700", "port=5432", "logging_collector=off", "log_destination=stderr"] {
        command.args(["-c", fixed]);
    }
    for danger in ["fsync", "full_page_writes"] {
        command.args(["-c", &format!("{danger}={on}")]);
    }
    let log_too = log.try_clone().doing("opening the log", &layout.log)?;
    command.stdout(log_too).stderr(log);
    // Ctrl-C goes to a whole process group, and would end the server before those who still work with it.
    command.process_group(0);
    command.spawn().doing("starting", &program)
}

fn setting(name: &str, value: &Path) -> std::ffi::OsString {
    let mut setting = std::ffi::OsString::from(name);
    setting.push("=");
    setting.push(value);
    setting
}

fn send(pid: Option<u32>, signal: Signal) {
    if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}
