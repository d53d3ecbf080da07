//! The data directory: the cluster in it, and where its socket stands.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::USER;
use super::account::{Account, not_ours};
use super::error::{Doing as _, ServerError};
use super::programs::Programs;

/// How long `initdb` may take.
const INITDB_LIMIT: Duration = Duration::from_secs(180);
/// A socket's path holds 107 bytes, and PostgreSQL adds a file name of 14 and its own margin.
const LONGEST_SOCKET_DIR: usize = 90;
/// A log file larger than this is set aside at the next start.
const LARGEST_LOG: u64 = 16 * 1024 * 1024;

/// What an operator may change in `postgresql.conf`; the rest is given at each start.
const CONF: &str = "
# Written by onehold when it made this cluster; yours to change.
listen_addresses = ''
max_connections = 200
shared_buffers = 128MB
jit = off
log_checkpoints = off
log_line_prefix = '%m [%p] '
timezone = 'UTC'
log_timezone = 'UTC'
";

/// The paths of one data directory.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The data directory itself, absolute and without links.
    pub(super) root: PathBuf,
    /// PostgreSQL's own data directory.
    pub(super) cluster: PathBuf,
    /// The server's log.
    pub(super) log: PathBuf,
    /// The private directory of the server's socket.
    pub(super) sockets: PathBuf,
}

impl Layout {
    /// The layout of `data_dir`, which is made where it is missing.
    pub(super) fn open(data_dir: &Path) -> Result<Self, ServerError> {
        let missing: Vec<&Path> =
            data_dir.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
        for dir in missing.into_iter().rev() {
            match fs::create_dir(dir) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                other => other.doing("making the directory", dir)?,
            }
            // Whatever the caller's umask: the server's user must get through. What is inside is private.
            fs::set_permissions(dir, Permissions::from_mode(0o755)).doing("opening the way into", dir)?;
        }
        let root = fs::canonicalize(data_dir).doing("finding", data_dir)?;
        let sockets = sockets_of(&root);
        Ok(Self { cluster: root.join("pg"), log: root.join("pg.log"), sockets, root })
    }

    /// The major version that made the cluster; none where there is no cluster yet.
    pub(super) fn made_by(&self) -> Result<Option<u32>, ServerError> {
        if !self.cluster.exists() {
            return Ok(None);
        }
        // The cluster is made elsewhere and moved here when it is whole, so a half-made one is not ours.
        let said = fs::read_to_string(self.cluster.join("PG_VERSION"));
        match said.as_deref().map(|version| version.trim().parse()) {
            Ok(Ok(major)) => Ok(Some(major)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let owner = fs::metadata(&self.cluster).doing("reading", &self.cluster)?.uid();
                Err(not_ours(&self.cluster, owner))
            }
            _ => Err(ServerError::NotACluster { path: self.cluster.clone() }),
        }
    }

    /// Makes the cluster beside its place and moves it there when it is whole: an `initdb` that is killed
    /// half-way leaves nothing that could be taken for a cluster.
    pub(super) async fn initialise(
        &self,
        programs: &Programs,
        account: &Account,
        durable: bool,
    ) -> Result<(), ServerError> {
        self.clear_half_made();
        let half_made = self.root.join(format!("pg.making-{}-{:08x}", std::process::id(), rand::random::<u32>()));
        // Not every C library knows C.UTF-8.
        let mut made = Ok(());
        for locale in ["C.UTF-8", "C"] {
            make_private(&half_made, account)?;
            made = initdb(&half_made, programs, account, durable, locale).await;
            if made.is_ok() {
                break;
            }
            let _ = fs::remove_dir_all(&half_made);
        }
        made?;
        let conf = half_made.join("postgresql.conf");
        let written = OpenOptions::new().append(true).open(&conf).and_then(|mut file| {
            file.write_all(CONF.as_bytes())?;
            file.sync_all()
        });
        written.doing("writing", &conf)?;
        fs::rename(&half_made, &self.cluster).doing("moving into place", &self.cluster)?;
        File::open(&self.root).and_then(|dir| dir.sync_all()).doing("syncing", &self.root)
    }

    /// Removes what a killed `initdb` left. One that still runs loses its directory and ends.
    fn clear_half_made(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("pg.making-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Makes the socket's directory ready: there, private, and without the files of a server that is gone.
    /// Call it only when no server runs.
    pub(super) fn prepare_sockets(&self, account: &Account) -> Result<(), ServerError> {
        make_private(&self.sockets, account)?;
        for name in [".s.PGSQL.5432", ".s.PGSQL.5432.lock"] {
            let path = self.sockets.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).doing("removing", &path),
                _ => {}
            }
        }
        Ok(())
    }

    /// The log, opened for a server to write to, and how long it is so far.
    pub(super) fn open_log(&self) -> Result<(File, u64), ServerError> {
        if fs::metadata(&self.log).is_ok_and(|m| m.len() > LARGEST_LOG) {
            let _ = fs::rename(&self.log, self.log.with_extension("log.old"));
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.log);
        let file = file.doing("opening the log", &self.log)?;
        let length = file.metadata().doing("reading", &self.log)?.len();
        Ok((file, length))
    }

    /// The last lines of what the log says since it had `from` bytes.
    pub(super) fn log_since(&self, from: u64) -> String {
        let all = fs::read(&self.log).unwrap_or_default();
        let new = all.get(usize::try_from(from).unwrap_or(0)..).unwrap_or(&all);
        let text = String::from_utf8_lossy(new);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

async fn initdb(
    into: &Path,
    programs: &Programs,
    account: &Account,
    durable: bool,
    locale: &str,
) -> Result<(), ServerError> {
    let mut command = account.command(&programs.bin.join("initdb"));
    command.arg("-D").arg(into).args(["--username", USER, "--encoding", "UTF8", "--locale", locale]);
    // Whoever gets to the socket is let in; its directory is closed to everyone but the server's user and
    // root. Nobody gets in over TCP, should an operator open it, before saying how.
    command.args(["--auth-local", "trust", "--auth-host", "reject"]);
    if !durable {
        command.arg("--no-sync");
    }
    command.kill_on_drop(true);
    let output = match tokio::time::timeout(INITDB_LIMIT, command.output()).await {
        Ok(output) => output.doing("running", &programs.bin.join("initdb"))?,
        Err(_) => return Err(ServerError::Initdb { output: format!("it took longer than {INITDB_LIMIT:?}") }),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ServerError::Initdb { output: if said.is_empty() { output.status.to_string() } else { said } })
}

/// Makes a directory that only this user may enter, or sees that the one that is there is such a one.
fn make_private(dir: &Path, account: &Account) -> Result<(), ServerError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return account.give(dir),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).doing("making the directory", dir),
    }
    // Somebody else's directory under this name, or a link to one, would be a trap.
    let there = fs::symlink_metadata(dir).doing("reading", dir)?;
    let ours = there.uid() == account.uid() || there.uid() == nix::unistd::geteuid().as_raw();
    if !there.is_dir() || !ours {
        return Err(not_ours(dir, there.uid()));
    }
    fs::set_permissions(dir, Permissions::from_mode(0o700)).doing("closing", dir)?;
    account.give(dir)
}

/// The directory of the socket: in the data directory, unless its path is too long for a socket or has
/// characters that PostgreSQL's lists of directories and connection strings give a meaning.
fn sockets_of(root: &Path) -> PathBuf {
    let inside = root.join("run");
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-".contains(&b);
    let bytes = inside.as_os_str().as_encoded_bytes();
    if bytes.len() <= LONGEST_SOCKET_DIR && bytes.iter().copied().all(plain) {
        return inside;
    }
    let name = hex::encode(&Sha256::digest(root.as_os_str().as_encoded_bytes())[..8]);
    Path::new("/tmp").join(format!("onehold-{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_stands_in_the_data_directory_unless_its_path_does_not_fit() {
        assert_eq!(sockets_of(Path::new("/srv/shop/.onehold")), Path::new("/srv/shop/.onehold/run"));
        for odd in [format!("/srv/{}", "x".repeat(100)), "/srv/my shop".to_owned(), "/srv/a,b".to_owned()] {
            let sockets = sockets_of(Path::new(&odd));
            assert!(sockets.starts_with("/tmp") && sockets.as_os_str().len() < 40, "{sockets:?}");
            assert_ne!(sockets, sockets_of(Path::new("/srv/another shop")));
        }
    }
}
