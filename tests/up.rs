//! `onehold up` and the server of its own: nothing is left behind, however it ends.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::support::process::{Running, free_port};
use crate::support::{eventually, room};

const LIMIT: Duration = Duration::from_secs(90);

fn up(room: &TempDir) -> Running {
    let (data_dir, port) = (room.path().to_str().unwrap(), free_port().to_string());
    Running::onehold(&["up", "--data-dir", data_dir, "--port", &port], [])
}

/// The process id of the server on this data directory.
fn server_of(data_dir: &Path) -> i32 {
    let said = fs::read_to_string(data_dir.join("pg/postmaster.pid")).unwrap();
    said.lines().next().unwrap().parse().unwrap()
}

fn runs(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// The guard of a process: the shell that is its child.
fn guard_of(pid: u32) -> i32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_else(|error| panic!("{pid}: {error}"));
    let is_guard = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("onehold-guard")
    };
    children.split_whitespace().map(|pid| pid.parse().unwrap()).find(is_guard).unwrap()
}

#[tokio::test]
async fn ctrl_c_and_sigterm_end_it_with_success_and_its_server_with_it() {
    let room = room();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut fleet = up(&room);
        fleet.line("ready http://127.0.0.1:", LIMIT).await;
        let server = server_of(room.path());
        assert!(runs(server));
        fleet.signal(signal);
        assert!(fleet.wait(LIMIT).await.success(), "{}", fleet.errors().await);
        assert!(!runs(server), "the server must be gone before its owner is");
    }
}

#[tokio::test]
async fn killed_together_with_its_guard_it_finds_its_server_at_the_next_start() {
    let room = room();
    let mut fleet = up(&room);
    fleet.line("ready ", LIMIT).await;
    let server = server_of(room.path());
    kill(Pid::from_raw(guard_of(fleet.pid())), Signal::SIGKILL).unwrap();
    fleet.signal(Signal::SIGKILL);
    fleet.wait(LIMIT).await;
    assert!(runs(server), "there must be a server to be found");

    let mut fleet = up(&room);
    fleet.line("ready ", LIMIT).await;
    assert!(!runs(server));
    assert_ne!(server_of(room.path()), server);
    // With its guard alive, the server goes by itself.
    let server = server_of(room.path());
    fleet.signal(Signal::SIGKILL);
    fleet.wait(LIMIT).await;
    eventually(LIMIT, || async { !runs(server) }).await;
}

#[tokio::test]
async fn two_on_one_data_directory_are_one_too_many() {
    let room = room();
    let mut first = up(&room);
    first.line("ready ", LIMIT).await;
    let mut second = up(&room);
    assert!(!second.wait(LIMIT).await.success());
    let said = second.errors().await;
    let root = room.path().canonicalize().unwrap();
    assert!(said.contains(&format!("process {}", first.pid())) && said.contains(root.to_str().unwrap()), "{said}");
    assert!(runs(server_of(room.path())), "the first one goes on");
}
