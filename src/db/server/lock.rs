//! One data directory, one process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::LOOK_AGAIN;
use super::account::not_ours;
use super::error::{Doing as _, ServerError};

/// How long to try for a data directory that seems to be in use.
const LOCK_LIMIT: Duration = Duration::from_millis(500);

/// Takes the lock that one process holds on the data directory for as long as it lives: the kernel
/// frees it, however the process ends.
pub(super) async fn take(root: &Path) -> Result<File, ServerError> {
    let path = root.join("lock");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = match opened {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let owner = fs::metadata(root).doing("reading", root)?.uid();
            return Err(not_ours(root, owner));
        }
        other => other.doing("opening the lock", &path)?,
    };
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            // A process that was killed while it started another one is survived by its half-born child
            // for a moment.
            Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_LIMIT => tokio::time::sleep(LOOK_AGAIN).await,
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&path).ok().and_then(|said| said.trim().parse().ok());
                return Err(ServerError::InUse { data_dir: root.to_owned(), pid });
            }
            Err(TryLockError::Error(source)) => return Err(ServerError::Io { doing: "locking", path, source }),
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).doing("writing the lock", &path)?;
    Ok(file)
}
