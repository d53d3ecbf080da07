//! How PostgreSQL's server programs are installed on this system.

use super::error::NEWEST;

/// The one command that installs them.
pub(super) fn command() -> String {
    command_for(&std::fs::read_to_string("/etc/os-release").unwrap_or_default())
}

/// By what `/etc/os-release` says of this system.
fn command_for(os_release: &str) -> String {
    if cfg!(target_os = "macos") {
        return format!("brew install postgresql@{NEWEST}");
    }
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key));
        line.map(|v| v.trim_matches('"').to_owned()).unwrap_or_default()
    };
    let system = format!("{} {}", value("ID="), value("ID_LIKE="));
    let is = |name: &str| system.split_whitespace().any(|word| word.starts_with(name));
    let command = if is("fedora") || is("rhel") || is("centos") {
        "dnf install -y postgresql-server postgresql-contrib"
    } else if is("suse") || is("opensuse") || is("sles") {
        "zypper install -y postgresql-server postgresql-contrib"
    } else if is("alpine") {
        "apk add postgresql postgresql-contrib"
    } else if is("arch") {
        "pacman -S --noconfirm postgresql"
    } else {
        "apt-get install -y postgresql"
    };
    if nix::unistd::geteuid().is_root() { command.to_owned() } else { format!("sudo {command}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn each_system_has_its_own_command() {
        let command = |release: &str| command_for(release).replace("sudo ", "");
        assert_eq!(command("ID=debian\nVERSION_ID=\"12\""), "apt-get install -y postgresql");
        assert_eq!(command("ID=linuxmint\nID_LIKE=\"ubuntu debian\""), "apt-get install -y postgresql");
        assert!(command("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"").starts_with("dnf install"));
        assert!(command("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"").starts_with("zypper install"));
        assert!(command("ID=alpine").starts_with("apk add"));
        assert!(command("ID=arch").starts_with("pacman"));
    }
}
