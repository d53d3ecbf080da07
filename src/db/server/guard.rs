//! The guard: a small process that stops the server when ours is gone, however it went. It holds the
//! reading end of a pipe whose writing end dies with us; nothing has to be caught or handled for that.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::error::{Doing as _, ServerError};

/// Reads the server's process id, then `done` or the end of the pipe. $1 is what to remove at the end.
const SCRIPT: &str = r#"# Stops PostgreSQL when onehold is gone.
trap '' INT TERM HUP QUIT
pid=
while read -r word; do
    [ "$word" = done ] && exit 0
    pid=$word
done
# A process that has ended but was not yet fetched by its parent has an empty command line.
runs() {
    kill -0 "$pid" 2>/dev/null || return 1
    [ ! -r "/proc/$pid/cmdline" ] || [ -n "$(tr -d '\0' <"/proc/$pid/cmdline")" ]
}
end() {
    runs && kill -"$1" "$pid" 2>/dev/null || return 0
    tries=$2
    while [ "$tries" -gt 0 ] && runs; do
        sleep 0.1
        tries=$((tries - 1))
    done
}
if [ -n "$pid" ]; then
    end INT 200
    end QUIT 100
    end KILL 10
fi
if [ -n "$1" ]; then
    rm -rf "$1" || { sleep 1; rm -rf "$1"; }
fi
"#;

/// The guard of one server.
#[derive(Debug)]
pub(super) struct Guard {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard that knows of no server yet, and removes the directory `remove` at the end.
    pub(super) fn start(remove: Option<&Path>) -> Result<Self, ServerError> {
        let shell = Path::new("/bin/sh");
        let mut process = Command::new(shell)
            .args(["-c", SCRIPT, "onehold-guard"])
            .arg(remove.map_or_else(PathBuf::new, Path::to_owned))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What ends our process group must not end the guard.
            .process_group(0)
            .spawn()
            .doing("starting the guard with", shell)?;
        let pipe = process.stdin.take();
        Ok(Self { process, pipe })
    }

    /// Names the server that shall not outlive us.
    pub(super) fn watch(&mut self, pid: u32) -> Result<(), ServerError> {
        self.say(&pid.to_string()).doing("telling the guard with", Path::new("/bin/sh"))
    }

    /// Sends the guard home: the server has ended.
    pub(super) fn dismiss(mut self) {
        if self.say("done").is_ok() {
            drop(self.pipe.take());
            let _ = self.process.wait();
        }
    }

    fn say(&mut self, word: &str) -> std::io::Result<()> {
        match &mut self.pipe {
            Some(pipe) => writeln!(pipe, "{word}"),
            None => Ok(()),
        }
    }
}
