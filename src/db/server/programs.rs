//! Finding PostgreSQL's server programs on this machine.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::account::Account;
use super::error::{NEWEST, OLDEST, ServerError};
use super::install;

/// Where the distributions put the programs: (folder, how its entries begin, the folder inside them).
const USUAL_FOLDERS: [(&str, &str, &str); 9] = [
    ("/usr/lib/postgresql", "", "bin"),                          // Debian, Ubuntu
    ("/usr", "pgsql-", "bin"),                                   // PGDG's packages for Red Hat's family
    ("/usr/lib", "postgresql", "bin"),                           // SUSE
    ("/usr/libexec", "postgresql", ""),                          // Alpine
    ("/usr/local", "pgsql", "bin"),                              // built from source
    ("/opt/homebrew/opt", "postgresql@", "bin"),                 // Homebrew on Apple's processors
    ("/usr/local/opt", "postgresql@", "bin"),                    // Homebrew on Intel's
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
    ("/usr/local/lib", "postgresql", "bin"),
];

/// A folder with `postgres` and `initdb` of one version, extension hstore included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    pub(super) bin: PathBuf,
    pub(super) major: u32,
}

/// The programs to use: those in `named` if given, otherwise the newest that were found. `made_by` is the
/// cluster that must be served and its version, where there is one: then only that version will do.
pub(super) async fn find(
    named: Option<&Path>,
    account: &Account,
    made_by: Option<(&Path, u32)>,
) -> Result<Programs, ServerError> {
    let folders = match named {
        Some(folder) => vec![folder.to_owned()],
        None => folders_of_this_machine().await,
    };
    let mut usable = Vec::new();
    let mut unusable = Vec::new();
    for folder in folders {
        match look_into(&folder, account).await {
            Ok(programs) => usable.push(programs),
            Err(why) => unusable.extend(why),
        }
    }
    choose(usable, unusable, named, made_by)
}

fn choose(
    usable: Vec<Programs>,
    mut unusable: Vec<String>,
    named: Option<&Path>,
    made_by: Option<(&Path, u32)>,
) -> Result<Programs, ServerError> {
    // Of equals the first: the order of the search is the order of preference.
    let Some(newest) = usable.iter().rev().max_by_key(|p| p.major) else {
        let install = install::command();
        return Err(match named {
            Some(folder) => {
                let nothing = || format!("{} holds no server programs", folder.display());
                ServerError::NamedPrograms { why: unusable.pop().unwrap_or_else(nothing), install }
            }
            None => ServerError::NoPrograms { unusable, install },
        });
    };
    match made_by {
        Some((cluster, major)) => usable.iter().find(|p| p.major == major).cloned().ok_or_else(|| {
            let others = usable.iter().map(|p| format!("{} holds version {}", p.bin.display(), p.major));
            unusable.extend(others);
            ServerError::OtherVersion { cluster: cluster.to_owned(), made_by: major, unusable }
        }),
        None => Ok(newest.clone()),
    }
}

/// Folders that may hold the programs, in the order of preference.
async fn folders_of_this_machine() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(bin) = said_by(Command::new("pg_config").arg("--bindir")).await {
        folders.push(PathBuf::from(bin));
    }
    // The shell knows PATH. A link there leads to the folder where `initdb` stands as well.
    if let Some(postgres) = said_by(Command::new("/bin/sh").args(["-c", "command -v postgres"])).await
        && let Ok(postgres) = fs::canonicalize(postgres)
    {
        folders.extend(postgres.parent().map(Path::to_owned));
    }
    for (folder, begin, inside) in USUAL_FOLDERS {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        let mut here: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(begin))
            .map(|entry| entry.path().join(inside))
            .filter(|path| path.join("postgres").exists())
            .collect();
        here.sort();
        folders.extend(here);
    }
    let mut seen = Vec::new();
    folders.retain(|folder| {
        !seen.contains(folder) && {
            seen.push(folder.clone());
            true
        }
    });
    folders
}

/// What a program prints, if it is there and succeeds.
async fn said_by(command: &mut Command) -> Option<String> {
    let output = command.output().await.ok().filter(|output| output.status.success())?;
    let said = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Some(said).filter(|said| !said.is_empty())
}

/// The programs in a folder, or why they will not do; no reason where there are none.
async fn look_into(bin: &Path, account: &Account) -> Result<Programs, Option<String>> {
    let postgres = bin.join("postgres");
    if !postgres.exists() || !bin.join("initdb").exists() {
        // Clients alone, as libpq's development files bring them, are not worth a word.
        return Err(None);
    }
    let said = account.command(&postgres).arg("--version").output().await.map_err(|error| {
        Some(match error.kind() {
            ErrorKind::PermissionDenied => format!("{} cannot be run by user {}", postgres.display(), account.name),
            _ => format!("{} cannot be run: {error}", postgres.display()),
        })
    })?;
    let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let major = major_of(&said).ok_or_else(|| Some(format!("{} says \"{said}\"", postgres.display())))?;
    if !(OLDEST..=NEWEST).contains(&major) {
        return Err(Some(format!("{} holds version {major}", bin.display())));
    }
    if let Some(share) = share_of(bin, account).await
        && !share.join("extension/hstore.control").exists()
    {
        return Err(Some(format!(
            "{} holds version {major} without the extension hstore, which is in the package postgresql-contrib",
            bin.display()
        )));
    }
    Ok(Programs { bin: bin.to_owned(), major })
}

/// Where these programs look for their extensions. `initdb` says so; not every folder has a `pg_config`,
/// and the one in PATH may speak of another version.
async fn share_of(bin: &Path, account: &Account) -> Option<PathBuf> {
    let said = account.command(&bin.join("initdb")).args(["--show", "-D", "/nowhere"]).output().await.ok()?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned() + &String::from_utf8_lossy(&said.stdout);
    said.lines().find_map(|line| line.strip_prefix("share_path=")).map(PathBuf::from)
}

/// 15 of `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, 18 of `… 18beta1`.
fn major_of(said: &str) -> Option<u32> {
    let version = said.strip_prefix("postgres (PostgreSQL) ")?;
    let digits = version.find(|c: char| !c.is_ascii_digit()).map_or(version, |end| &version[..end]);
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(bin: &str, major: u32) -> Programs {
        Programs { bin: PathBuf::from(bin), major }
    }

    #[test]
    fn the_major_version_is_read_from_what_postgres_says() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major_of("postgres (PostgreSQL) 9.6"), Some(9));
        assert_eq!(major_of("mysqld 8"), None);
    }

    #[test]
    fn where_no_programs_are_found_the_error_names_the_command_that_installs_them() {
        let old = vec!["/opt/pg/bin holds version 14".to_owned()];
        let said = choose(Vec::new(), old, None, None).unwrap_err().to_string();
        assert!(said.contains(&install::command()), "{said}");
        assert!(said.contains("/opt/pg/bin holds version 14"), "{said}");
    }

    #[test]
    fn a_new_cluster_gets_the_newest_version_and_an_old_one_its_own() {
        let found = vec![programs("/a", 15), programs("/b", 17), programs("/c", 17)];
        assert_eq!(choose(found.clone(), Vec::new(), None, None).unwrap(), programs("/b", 17));
        let old = Path::new("/data/pg");
        assert_eq!(choose(found.clone(), Vec::new(), None, Some((old, 15))).unwrap(), programs("/a", 15));
        let said = choose(found, Vec::new(), None, Some((old, 16))).unwrap_err().to_string();
        assert!(said.contains("/data/pg was made by PostgreSQL 16"), "{said}");
        assert!(said.contains("/b holds version 17"), "{said}");
    }
}
