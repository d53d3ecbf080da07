# What the commands in this folder share; read by them, not run.
#
# PostgreSQL's server programs and a C compiler are installed with the system's package manager, and only
# where none are found. Everything else comes by cargo.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() { say "$*"; exit 1; }

# The folder of PostgreSQL's server programs, version 15 to 18, newest first; nothing if there is none.
# The executable looks in the same places.
find_postgres() {
    best='' best_major=0
    for bin in ${ONEHOLD_PG_BIN:+"$ONEHOLD_PG_BIN"} \
        "$(pg_config --bindir 2>/dev/null)" \
        "$(p=$(command -v postgres) && dirname "$(readlink -f "$p" 2>/dev/null || echo "$p")")" \
        /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/lib/postgresql*/bin /usr/libexec/postgresql* \
        /usr/local/pgsql/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin \
        /Applications/Postgres.app/Contents/Versions/*/bin; do
        [ -n "$bin" ] && [ -x "$bin/postgres" ] && [ -x "$bin/initdb" ] || continue
        major=$("$bin/postgres" --version 2>/dev/null | sed -n 's/^postgres (PostgreSQL) \([0-9]*\).*/\1/p')
        [ "${major:-0}" -ge 15 ] && [ "$major" -le 18 ] || continue
        if [ "$bin" = "${ONEHOLD_PG_BIN:-}" ]; then
            best=$bin
            break
        fi
        if [ "$major" -gt "$best_major" ]; then
            best=$bin best_major=$major
        fi
    done
    printf '%s' "$best"
}

# How to become root: not at all where we are, by sudo where that needs no answer or somebody is there to
# give it. Fails where there is no way.
root_by() {
    if [ "$(id -u)" = 0 ]; then
        printf ''
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        printf 'sudo'
    else
        return 1
    fi
}

# install WHAT DEBIAN-PACKAGES RED-HAT-PACKAGES SUSE-PACKAGES ALPINE-PACKAGES ARCH-PACKAGES BREW-PACKAGES
install() {
    if command -v apt-get >/dev/null; then
        command="apt-get install -y $2"
    elif command -v dnf >/dev/null; then
        command="dnf install -y $3"
    elif command -v zypper >/dev/null; then
        command="zypper --non-interactive install $4"
    elif command -v apk >/dev/null; then
        command="apk add $5"
    elif command -v pacman >/dev/null; then
        command="pacman -S --noconfirm --needed $6"
    elif command -v brew >/dev/null; then
        command="brew install $7"
    else
        fail "$1: none found, and no package manager is known here; install it by hand"
    fi
    case $command in
    brew*) sudo='' ;;
    *) sudo=$(root_by) || fail "$1: none found, and installing needs root; run: sudo $command" ;;
    esac
    say "$1: none found; running: ${sudo:+$sudo }$command"
    # Commands are words to be split.
    # shellcheck disable=SC2086
    case $command in
    apt-get*)
        $sudo apt-get update -qq >&2 || say "apt-get update failed; trying with the lists that are here"
        $sudo env DEBIAN_FRONTEND=noninteractive $command >&2
        ;;
    *) $sudo $command >&2 ;;
    esac || fail "that failed"
}

need_postgres() {
    [ -z "$(find_postgres)" ] || return 0
    [ -z "${ONEHOLD_PG_BIN:-}" ] || fail "ONEHOLD_PG_BIN: $ONEHOLD_PG_BIN has no server programs of PostgreSQL 15 to 18"
    install "PostgreSQL's server programs" postgresql "postgresql-server postgresql-contrib" \
        "postgresql-server postgresql-contrib" "postgresql postgresql-contrib" postgresql postgresql@17
    [ -n "$(find_postgres)" ] ||
        fail "the package manager's PostgreSQL is not of version 15 to 18; see https://www.postgresql.org/download/"
}

# Whether there is promtool, which checks Prometheus's rules; installed where that may be done. Nothing but a check
# needs it, so its absence is no failure.
find_promtool() {
    command -v promtool >/dev/null ||
        (install promtool "--no-install-recommends prometheus" golang-github-prometheus golang-github-prometheus-prometheus \
            prometheus prometheus prometheus) || return 1
    command -v promtool >/dev/null
}

need_rust() {
    if ! command -v cargo >/dev/null && [ -x "${HOME:-/}/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
        export PATH
    fi
    command -v cargo >/dev/null || fail "a Rust toolchain is needed, 1.94 or newer: https://rustup.rs"
    command -v cc >/dev/null || install "C compiler" "gcc libc6-dev" gcc gcc build-base gcc gcc
    # A checkout or a home that belongs to somebody else: what is built and fetched goes elsewhere.
    own="${TMPDIR:-/tmp}/onehold-build-$(id -u)"
    if [ -z "${CARGO_TARGET_DIR:-}" ] && ! can_write target; then
        export CARGO_TARGET_DIR="$own/target"
        say "building in $CARGO_TARGET_DIR: ./target belongs to another user"
    fi
    if [ -z "${CARGO_HOME:-}" ] && ! can_write "${HOME:-/}/.cargo"; then
        export CARGO_HOME="$own/cargo"
        say "fetching to $CARGO_HOME: ${HOME:-/}/.cargo cannot be written"
    fi
}

# Whether a folder can be written to, or made.
can_write() {
    if [ -e "$1" ]; then [ -w "$1" ]; else [ -w "$(dirname "$1")" ]; fi
}
