//! Whose rights the server's programs run with. PostgreSQL refuses root, so root hands them to the owner
//! of the data, to `postgres` or to `nobody`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::unistd::{Uid, User, geteuid};
use tokio::process::Command;

use super::error::{Doing as _, ServerError};

/// Settings of the caller's shell that would lead the programs astray.
const FOREIGN_SETTINGS: [&str; 14] = [
    "PGDATA",
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGUSER",
    "PGDATABASE",
    "PGPASSWORD",
    "PGOPTIONS",
    "PGSSLMODE",
    "PGSERVICE",
    "PGTZ",
    "LANG",
    "LANGUAGE",
    "LC_CTYPE",
];

/// A user of this machine.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) name: String,
    /// Whom to become; none where we are it already.
    become_ids: Option<(u32, u32)>,
}

impl Account {
    /// The user for the data directory `cluster`, which may not be there yet.
    pub(super) fn choose(cluster: &Path) -> Result<Self, ServerError> {
        let owner = fs::metadata(cluster).ok().map(|m| (m.uid(), m.gid()));
        let me = geteuid();
        if !me.is_root() {
            return match owner {
                Some((owner, _)) if owner != me.as_raw() => Err(not_ours(cluster, owner)),
                _ => Ok(Self { name: name_of(me), become_ids: None }),
            };
        }
        if let Some((uid, gid)) = owner.filter(|(uid, _)| *uid != 0) {
            return Ok(Self { name: name_of(Uid::from_raw(uid)), become_ids: Some((uid, gid)) });
        }
        let user = ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten());
        let user = user.ok_or(ServerError::NoAccount)?;
        Ok(Self { name: user.name, become_ids: Some((user.uid.as_raw(), user.gid.as_raw())) })
    }

    /// A program to be run with this user's rights, from `/`: the caller's directory may be closed to it.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null()).env("LC_ALL", "C");
        for name in FOREIGN_SETTINGS {
            command.env_remove(name);
        }
        if let Some((uid, gid)) = self.become_ids {
            // Becoming another user drops the other groups of root, too.
            command.gid(gid).uid(uid);
        }
        command
    }

    /// Makes this user the owner of `path`.
    pub(super) fn give(&self, path: &Path) -> Result<(), ServerError> {
        match self.become_ids {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid)).doing("giving the server", path),
            None => Ok(()),
        }
    }

    /// The id of the user.
    pub(super) fn uid(&self) -> u32 {
        self.become_ids.map_or_else(|| geteuid().as_raw(), |(uid, _)| uid)
    }

    /// Refuses a directory that this user cannot enter. It is tried, not computed: access lists and mounts
    /// have their say, too.
    pub(super) async fn enter(&self, dir: &Path) -> Result<(), ServerError> {
        if self.become_ids.is_none() {
            return Ok(());
        }
        let shell = Path::new("/bin/sh");
        match self.command(shell).args(["-c", ":"]).current_dir(dir).status().await {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(ServerError::NotReachable { user: self.name.clone(), closed: self.first_closed(dir) })
            }
            other => other.map(|_| ()).doing("entering", dir),
        }
    }

    /// The first directory on the way to `dir` whose mode keeps this user out.
    fn first_closed(&self, dir: &Path) -> PathBuf {
        let (uid, gid) = self.become_ids.unwrap_or((u32::MAX, u32::MAX));
        let closed = |path: &&Path| {
            fs::metadata(path).is_ok_and(|m| {
                let bit = if m.uid() == uid {
                    0o100
                } else if m.gid() == gid {
                    0o010
                } else {
                    0o001
                };
                m.mode() & bit == 0
            })
        };
        let way: Vec<&Path> = dir.ancestors().collect();
        way.into_iter().rev().find(closed).unwrap_or(dir).to_owned()
    }
}

/// The refusal of a path that belongs to the user `owner`.
pub(super) fn not_ours(path: &Path, owner: u32) -> ServerError {
    ServerError::NotOurs { path: path.to_owned(), owner: name_of(Uid::from_raw(owner)) }
}

fn name_of(uid: Uid) -> String {
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}
