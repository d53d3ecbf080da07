//! The embedded server: kept between runs, owned by one process, and gone when its owner is.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onehold::db::server::{Server, ServerError, ServerSettings};
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;

use crate::support::process::{Running, in_second_role, second_role};
use crate::support::{eventually, pg_bin, room};

const LIMIT: Duration = Duration::from_secs(60);

fn settings(data_dir: &Path) -> ServerSettings {
    ServerSettings { data_dir: data_dir.to_owned(), pg_bin: pg_bin(), durable: false }
}

async fn start(data_dir: &Path) -> Server {
    Server::start(settings(data_dir)).await.unwrap()
}

async fn refused(settings: ServerSettings) -> ServerError {
    Server::start(settings).await.map(|_| ()).unwrap_err()
}

async fn run(server: &Server, statement: &'static str) {
    let mut conn = PgConnection::connect_with(&server.options()).await.unwrap();
    sqlx::raw_sql(statement).execute(&mut conn).await.unwrap();
}

async fn text(server: &Server, query: &'static str) -> String {
    let mut conn = PgConnection::connect_with(&server.options()).await.unwrap();
    sqlx::query_scalar(query).fetch_one(&mut conn).await.unwrap()
}

/// Whether a process is there and has not ended.
fn runs(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

async fn gone(pid: u32) {
    eventually(LIMIT, || async { !runs(pid) }).await;
}

/// A command that runs with the rights of the server's user.
fn as_its_user(server_dir: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").kill_on_drop(true);
    if nix::unistd::geteuid().is_root() {
        let owner = fs::metadata(server_dir.join("pg")).unwrap();
        command.gid(owner.gid()).uid(owner.uid());
    }
    command
}

#[tokio::test]
async fn data_is_kept_between_runs_and_the_url_leads_to_it() {
    let room = room();
    let dir = room.path().join("deep/er");
    let server = start(&dir).await;
    run(&server, "create extension hstore; create table kept (word text); insert into kept values ('here')").await;
    let way_in = fs::metadata(dir.join("run")).unwrap();
    assert_eq!(way_in.mode() & 0o777, 0o700, "only the server's user and root may get to a socket that trusts");
    let pid = server.pid().unwrap();
    server.stop().await.unwrap();
    assert!(!runs(pid), "stop must come back after the server's end");

    let server = start(&dir).await;
    assert_eq!(text(&server, "select word from kept").await, "here");
    let mut conn = PgConnection::connect(&server.url()).await.unwrap();
    let word: String = sqlx::query_scalar("select word from kept").fetch_one(&mut conn).await.unwrap();
    assert_eq!(word, "here");
    assert_eq!(text(&server, "show listen_addresses").await, "");
    assert_eq!(text(&server, "show server_encoding").await, "UTF8");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn fsync_is_on_where_it_was_asked_for() {
    let room = room();
    let server = Server::start(ServerSettings { durable: true, ..settings(room.path()) }).await.unwrap();
    let on = "select current_setting('fsync') || current_setting('full_page_writes')";
    assert_eq!(text(&server, on).await, "onon");
    server.stop().await.unwrap();
    let server = start(room.path()).await;
    assert_eq!(text(&server, on).await, "offoff");
}

#[tokio::test]
async fn a_second_instance_on_one_data_directory_is_refused_by_name() {
    let room = room();
    let server = start(room.path()).await;
    let said = refused(settings(room.path())).await.to_string();
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    assert!(said.contains(&room.path().canonicalize().unwrap().display().to_string()), "{said}");
    assert_eq!(text(&server, "select 'unharmed'").await, "unharmed");
    server.stop().await.unwrap();
    start(room.path()).await.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_dropped_is_gone() {
    let room = room();
    let server = start(room.path()).await;
    let pid = server.pid().unwrap();
    drop(server);
    assert!(!runs(pid));
}

#[tokio::test]
async fn a_temporary_server_takes_its_directory_with_it() {
    let room = room();
    let server = Server::temporary(room.path(), pg_bin()).await.unwrap();
    let dir = server.data_dir().to_owned();
    assert!(dir.starts_with(room.path().canonicalize().unwrap()) && dir.join("pg").exists());
    server.stop().await.unwrap();
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_server_that_ends_by_itself_is_noticed() {
    let room = room();
    let mut server = start(room.path()).await;
    kill(Pid::from_raw(server.pid().unwrap().try_into().unwrap()), Signal::SIGINT).unwrap();
    let status = tokio::time::timeout(LIMIT, server.ended()).await.unwrap().unwrap();
    assert!(status.success());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_whose_owner_is_killed_is_stopped_and_its_data_served_again() {
    let me = "server::a_server_whose_owner_is_killed_is_stopped_and_its_data_served_again";
    if let Some(dir) = second_role() {
        return own_a_server_for_ever(Path::new(&dir)).await;
    }
    let room = room();
    let mut owner = Running::start(&mut in_second_role(me, room.path()));
    let pid: u32 = owner.line("serves ", LIMIT).await.parse().unwrap();
    owner.signal(Signal::SIGKILL);
    owner.wait(LIMIT).await;
    gone(pid).await;
    let server = start(room.path()).await;
    assert_eq!(text(&server, "select word from kept").await, "committed");
}

/// The second role of the test above.
async fn own_a_server_for_ever(dir: &Path) {
    let server = start(dir).await;
    run(&server, "create table kept (word text); insert into kept values ('committed')").await;
    // The test harness may have begun a line of its own.
    println!("\nserves {}", server.pid().unwrap());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_server_left_by_a_killed_owner_and_guard_is_found_and_stopped() {
    let room = room();
    let server = start(room.path()).await;
    let bin = server.bin().to_owned();
    server.stop().await.unwrap();
    // What a killed owner and a killed guard leave: a server that nobody of ours watches.
    let started = as_its_user(room.path(), bin.join("postgres"))
        .arg("-D")
        .arg(room.path().canonicalize().unwrap().join("pg"))
        .args(["-c", &format!("unix_socket_directories={}", room.path().join("run").display())])
        .stderr(Stdio::null())
        .spawn();
    let mut left = started.unwrap();
    let pid = left.id().unwrap();
    let pid_file = room.path().join("pg/postmaster.pid");
    eventually(LIMIT, || async {
        fs::read_to_string(&pid_file).is_ok_and(|said| said.lines().nth(7).is_some_and(|s| s.contains("ready")))
    })
    .await;

    let server = start(room.path()).await;
    assert!(!runs(pid), "the server that was left must be stopped first");
    assert_ne!(server.pid().unwrap(), pid);
    left.wait().await.unwrap();
    assert_eq!(text(&server, "select 'served'").await, "served");
}

#[tokio::test]
async fn a_crashed_servers_cluster_is_recovered() {
    let room = room();
    let mut server = start(room.path()).await;
    run(&server, "create table kept (word text); insert into kept values ('committed')").await;
    // Somebody is at work while it happens.
    let mut busy = PgConnection::connect_with(&server.options()).await.unwrap();
    let work = tokio::spawn(async move { sqlx::raw_sql("select pg_sleep(60)").execute(&mut busy).await.map(|_| ()) });
    kill(Pid::from_raw(server.pid().unwrap().try_into().unwrap()), Signal::SIGKILL).unwrap();
    server.ended().await.unwrap();
    drop(server);
    let server = start(room.path()).await;
    assert_eq!(text(&server, "select word from kept").await, "committed");
    work.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn the_last_processes_of_a_killed_server_are_waited_for() {
    let room = room();
    let mut server = start(room.path()).await;
    let mut busy = PgConnection::connect_with(&server.options()).await.unwrap();
    let last: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut busy).await.unwrap();
    // It cannot see yet that its server is gone.
    kill(Pid::from_raw(last), Signal::SIGSTOP).unwrap();
    kill(Pid::from_raw(server.pid().unwrap().try_into().unwrap()), Signal::SIGKILL).unwrap();
    server.ended().await.unwrap();
    drop(server);
    let dir = room.path().to_owned();
    let again = tokio::spawn(async move { start(&dir).await });
    let log = room.path().join("pg.log");
    eventually(LIMIT, || async { fs::read_to_string(&log).unwrap().contains("shared memory block") }).await;
    kill(Pid::from_raw(last), Signal::SIGCONT).unwrap();
    let server = again.await.unwrap();
    assert_eq!(text(&server, "select 'served'").await, "served");
}

#[tokio::test]
async fn a_stale_pid_file_is_survived_whether_its_process_is_gone_or_another_program() {
    let room = room();
    let server = start(room.path()).await;
    let (pid_file, socket_lock) = (room.path().join("pg/postmaster.pid"), room.path().join("run/.s.PGSQL.5432.lock"));
    let (pid_said, socket_said) = (fs::read_to_string(&pid_file).unwrap(), fs::read_to_string(&socket_lock).unwrap());
    let dead = server.pid().unwrap();
    server.stop().await.unwrap();

    // PostgreSQL itself would refuse to start beside a living process of the same user.
    let mut other = as_its_user(room.path(), "sleep").arg("600").spawn().unwrap();
    for pid in [dead, other.id().unwrap(), std::process::id()] {
        let named = |said: &str| said.replacen(&dead.to_string(), &pid.to_string(), 1);
        fs::write(&pid_file, named(&pid_said)).unwrap();
        fs::write(&socket_lock, named(&socket_said)).unwrap();
        let server = start(room.path()).await;
        assert_eq!(text(&server, "select 'served'").await, "served");
        server.stop().await.unwrap();
    }
    assert!(other.try_wait().unwrap().is_none(), "another program must be left alone");
    fs::write(&pid_file, "not a number").unwrap();
    start(room.path()).await.stop().await.unwrap();
}

#[tokio::test]
async fn an_initdb_that_was_killed_half_way_leaves_nothing_in_the_way() {
    let room = room();
    fs::create_dir_all(room.path().join("pg.making-1-0000002a/base")).unwrap();
    fs::write(room.path().join("pg.making-1-0000002a/PG_VERSION"), "15\n").unwrap();
    let server = start(room.path()).await;
    assert_eq!(text(&server, "select 'whole'").await, "whole");
    let left: Vec<_> = fs::read_dir(room.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("pg.making")), "{left:?}");
}

#[tokio::test]
async fn a_path_too_long_or_too_odd_for_a_socket_is_served_all_the_same() {
    let room = room();
    for name in ["x".repeat(120), "a b, \"c\" = 'd'".to_owned()] {
        let server = start(&room.path().join(name)).await;
        assert_eq!(text(&server, "select 'served'").await, "served");
        let mut conn = PgConnection::connect(&server.url()).await.unwrap();
        sqlx::raw_sql("select 1").execute(&mut conn).await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_with_what_to_do() {
    let room = room();
    let nothing = room.path().join("nothing");
    let said = refused(ServerSettings { pg_bin: Some(nothing), ..settings(&room.path().join("a")) }).await.to_string();
    assert!(said.contains("ONEHOLD_PG_BIN") && said.contains("install"), "{said}");

    fs::create_dir_all(room.path().join("b/pg")).unwrap();
    fs::write(room.path().join("b/pg/precious"), "").unwrap();
    let said = refused(settings(&room.path().join("b"))).await.to_string();
    assert!(said.contains("no PostgreSQL data directory"), "{said}");
    assert!(room.path().join("b/pg/precious").exists());

    let server = start(&room.path().join("c")).await;
    server.stop().await.unwrap();
    fs::write(room.path().join("c/pg/PG_VERSION"), "14\n").unwrap();
    let said = refused(settings(&room.path().join("c"))).await.to_string();
    assert!(said.contains("made by PostgreSQL 14"), "{said}");
}

#[tokio::test]
async fn a_data_directory_that_the_servers_user_cannot_reach_is_named() {
    if !nix::unistd::geteuid().is_root() {
        // Only root hands the server to another user.
        return;
    }
    let closed = room();
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let said = refused(settings(&closed.path().join("data"))).await.to_string();
    assert!(said.contains("chmod o+x") && said.contains(closed.path().to_str().unwrap()), "{said}");
    // A temporary server looks for another place.
    let server = Server::temporary(closed.path(), pg_bin()).await.unwrap();
    assert!(!server.data_dir().starts_with(closed.path()));
}
