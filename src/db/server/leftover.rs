//! A server that outlived the process that started it: found by its `postmaster.pid`, and stopped. Called
//! with the data directory's lock in hand, so whoever started it is gone.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use super::error::{Doing as _, ServerError};
use super::{LOOK_AGAIN, MORE_PATIENCE, PATIENCE};

/// Stops the server that `postmaster.pid` names, if it is one of this cluster, and removes the file. A
/// file that names a process that is gone, or that is another program by now, says nothing.
pub(super) async fn stop(cluster: &Path) -> Result<(), ServerError> {
    let file = cluster.join("postmaster.pid");
    let Ok(said) = fs::read_to_string(&file) else { return Ok(()) };
    let pid = said.lines().next().and_then(|line| line.trim().parse::<i32>().ok()).filter(|pid| *pid > 1);
    if let Some(pid) = pid
        && is_server_of(pid, cluster).await
    {
        tracing::warn!(pid, "a PostgreSQL server of this data directory was left running; stopping it");
        end(pid, cluster).await?;
    }
    match fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).doing("removing the stale", &file),
        _ => Ok(()),
    }
}

async fn end(pid: i32, cluster: &Path) -> Result<(), ServerError> {
    for (signal, limit) in [(Signal::SIGINT, PATIENCE), (Signal::SIGQUIT, MORE_PATIENCE)] {
        // It may end between the look and the signal.
        let _ = kill(Pid::from_raw(pid), signal);
        let since = Instant::now();
        while since.elapsed() < limit {
            if !is_server_of(pid, cluster).await {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
    Err(ServerError::DidNotStop { pid })
}

/// Whether process `pid` is a PostgreSQL server that runs on `cluster`.
async fn is_server_of(pid: i32, cluster: &Path) -> bool {
    if Path::new("/proc/self/cmdline").exists() {
        return runs_on(pid, cluster);
    }
    let Ok(output) = Command::new("ps").args(["-o", "args=", "-p", &pid.to_string()]).output().await else {
        return false;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    said.contains("postgres") && said.contains(&*cluster.to_string_lossy())
}

/// As `/proc` tells it. The command line is everybody's to read; where the process stands (which holds
/// also after the directory was moved) is not, in some containers.
fn runs_on(pid: i32, cluster: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let words: Vec<&Path> = line.split(|byte| *byte == 0).map(|word| Path::new(OsStr::from_bytes(word))).collect();
    let program = words.first().and_then(|path| path.file_name()).unwrap_or_default();
    if program != "postgres" && program != "postmaster" {
        return false;
    }
    let same = |path: &Path| fs::canonicalize(path).is_ok_and(|path| path == cluster);
    words.windows(2).any(|pair| pair[0] == Path::new("-D") && same(pair[1]))
        || fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|path| same(&path))
}
