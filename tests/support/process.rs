//! Processes of our own: the executable under test, and a second copy of a test.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;

/// The executable `onehold` as built for this test run.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_onehold"))
}

/// A port on 127.0.0.1 that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A process that is killed when its handle goes.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    errors: JoinHandle<String>,
}

impl Running {
    /// Starts `command`; its standard output is read line by line, its standard error at its end.
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut pipe = child.stderr.take().unwrap();
        // Read all the time: a full pipe would stop the process.
        let errors = tokio::spawn(async move {
            let mut said = Vec::new();
            let _ = pipe.read_to_end(&mut said).await;
            String::from_utf8_lossy(&said).into_owned()
        });
        Self { child, lines, errors }
    }

    /// Starts the executable with these arguments, and no settings but those of `env` and the programs of
    /// PostgreSQL that the tests use.
    pub(crate) fn onehold<'a>(args: &[&str], env: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let mut command = Command::new(binary());
        let foreign = |name: &str| name.starts_with("ONEHOLD_") && name != "ONEHOLD_PG_BIN";
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| foreign(name) || ["DATABASE_URL", "PORT", "RUST_LOG"].contains(&name)) {
                command.env_remove(name);
            }
        }
        Self::start(command.args(args).envs(env))
    }

    /// The first line of its standard output that begins with `prefix`, without it.
    ///
    /// # Panics
    /// When it ends, or `limit` is over, before such a line.
    pub(crate) async fn line(&mut self, prefix: &str, limit: Duration) -> String {
        let search = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if let Some(rest) = line.strip_prefix(prefix) {
                    return rest.to_owned();
                }
            }
            panic!("the process ended without a line {prefix:?}: {}", self.errors().await)
        };
        tokio::time::timeout(limit, search).await.unwrap_or_else(|_| panic!("no line {prefix:?} within {limit:?}"))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it has not been waited for")
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When `limit` is over.
    pub(crate) async fn wait(&mut self, limit: Duration) -> ExitStatus {
        tokio::time::timeout(limit, self.child.wait()).await.expect("the process must end in time").unwrap()
    }

    /// What it has said to standard error; known when it has ended.
    pub(crate) async fn errors(&mut self) -> String {
        (&mut self.errors).await.unwrap()
    }
}

const SECOND_ROLE: &str = "ONEHOLD_TEST_SECOND_ROLE";

/// Lets one test play two processes: what the second one was told; none in the first.
pub(crate) fn second_role() -> Option<String> {
    std::env::var(SECOND_ROLE).ok()
}

/// The test called `name` once more, in its second role, told `word`.
pub(crate) fn in_second_role(name: &str, word: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(SECOND_ROLE, word);
    command
}
