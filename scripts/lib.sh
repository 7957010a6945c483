# Shared by scripts/demo and scripts/test: sets up what they need, inside this repository.
# Source it from bash; it changes to the repository's folder.
# shellcheck shell=bash

set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
repository=$(pwd -P)
cache=$repository/.cache
venv=$repository/.venv
python=$venv/bin/python

# Whatever pip and npm keep, they keep inside the repository.
export PIP_CACHE_DIR=$cache/pip PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
export npm_config_cache=$cache/npm npm_config_update_notifier=false
# Nothing that talks to loopback may ask a proxy.
export NO_PROXY="127.0.0.1,localhost${NO_PROXY:+,$NO_PROXY}"
export no_proxy=$NO_PROXY

say() { printf '%s\n' "$*" >&2; }
fail() { say "${0##*/}: $*"; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }

# ---- Python and system packages ---------------------------------------------------------------

is_recent_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Prints the path of a Python of at least 3.11, the real one where the name is a wrapper of pyenv.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 \
        "${PYENV_ROOT:-${HOME:-/}/.pyenv}"/versions/3.*/bin/python3; do
        if is_recent_python "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    return 1
}

# Prints the Debian packages that are missing to build the virtual environment with the Python $1.
missing_packages() {
    local found=$1
    if [ -z "$found" ]; then
        echo python3 python3-dev python3-venv
    else
        "$found" -c 'import ensurepip, venv' >/dev/null 2>&1 || echo python3-venv
        "$found" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || echo python3-dev
    fi
    gcc -E -include stdio.h -x c /dev/null >/dev/null 2>&1 || echo gcc libc6-dev
    command -v pkg-config >/dev/null || echo pkg-config
    pkg-config --exists libsystemd 2>/dev/null || echo libsystemd-dev
}

# Prints the Debian package that is missing to evaluate Nix files.
missing_nix() { command -v nix-instantiate >/dev/null || echo nix-bin; }

# Prints the Debian packages that are missing to try the command in a terminal and in its shells.
missing_terminal_packages() {
    local program
    for program in tmux zsh fish; do command -v "$program" >/dev/null || echo "$program"; done
    command -v man >/dev/null || echo man-db
}

# Prints the Debian package that is missing to look at the page in a browser.
missing_chromium() { command -v chromium >/dev/null || echo chromium; }

# Prints a folder with promtool, to be put on PATH; nothing where it is installed or cannot be had. The package of
# Prometheus is only unpacked: installed, it would start a server wherever systemd runs.
ensure_promtool() {
    local folder=$cache/prometheus
    ! command -v promtool >/dev/null || return 0
    if [ ! -x "$folder/usr/bin/promtool" ]; then
        command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 0
        say "unpacking promtool from Debian's package of Prometheus into .cache"
        rm -rf "$folder"
        mkdir -p "$folder"
        (
            cd "$folder" || exit 1
            ! is_root || apt-get update
            apt-get -o APT::Sandbox::User=root download prometheus &&
                dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
            rm -f prometheus_*.deb
        ) </dev/null >"$cache/apt.log" 2>&1 || return 0
    fi
    echo "$folder/usr/bin"
}

# Installs Debian packages as root, and else says which are missing and how to get them.
install_packages() {
    [ $# -gt 0 ] || return 0
    local command="apt-get install -y --no-install-recommends $*"
    command -v apt-get >/dev/null || fail "these programs or libraries are missing (names of Debian packages): $*"
    is_root || fail "these system packages are missing: $*
Install them and start again:
    sudo apt-get update && sudo $command"
    say "installing system packages: $*"
    mkdir -p "$cache"
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive $command; } </dev/null >"$cache/apt.log" 2>&1; then
        tail -n 20 "$cache/apt.log" >&2
        fail "'$command' failed; all of its output is in .cache/apt.log"
    fi
}

# Prints the Debian packages that are missing to boot machines with a systemd of their own.
missing_machine_packages() {
    command -v linux.uml >/dev/null || echo user-mode-linux
    command -v systemd-run >/dev/null || echo systemd
    command -v dbus-daemon >/dev/null || echo dbus
    [ -e /usr/lib/systemd/user/dbus.socket ] || echo dbus-user-session
    compgen -G '/usr/lib/*/security/pam_systemd.so' >/dev/null || compgen -G '/lib/*/security/pam_systemd.so' >/dev/null ||
        echo libpam-systemd
    command -v ip >/dev/null || echo iproute2
    command -v useradd >/dev/null || echo passwd
    command -v setpriv >/dev/null || echo util-linux
}

# ---- the virtual environment --------------------------------------------------------------------

# What .venv was made from: the place, since it cannot be moved, and the requirements.
environment_stamp() { echo "$repository"; sha256sum <pyproject.toml; }

is_environment_fresh() {
    [ "$(cat "$venv/installed" 2>/dev/null)" = "$(environment_stamp)" ] && is_recent_python "$python" &&
        "$python" -c 'import hive_subagent_daemon, mcp, systemd.daemon, pytest' 2>/dev/null
}

build_environment() {
    local found missing
    found=$(find_python) || found=
    mapfile -t missing < <({ missing_packages "$found"; echo "$@"; } | xargs -r -n 1)
    install_packages "${missing[@]}"
    found=$(find_python) || fail "no Python of at least 3.11 found; set PYTHON to the path of one"
    if ! is_recent_python "$python" || ! head -n 1 "$venv/installed" 2>/dev/null | grep -qxF "$repository"; then
        say "making the virtual environment .venv with $("$found" --version)"
        rm -rf "$venv"
        "$found" -m venv "$venv"
    fi
    say "installing this package and its requirements into .venv"
    if ! "$python" -m pip install --editable '.[dev]' </dev/null >"$cache/pip.log" 2>&1; then
        tail -n 20 "$cache/pip.log" >&2
        fail "pip could not install the requirements; all of its output is in .cache/pip.log"
    fi
    environment_stamp >"$venv/installed"
}

# Prints npm where it will be needed to fetch a claude.
missing_npm() { command -v npm >/dev/null || compgen -G "$cache/claude/*/node_modules" >/dev/null || echo npm; }

# Leaves .venv with this package and all that its tests need; does nothing when it is up to date.
# The arguments are packages that will be needed later, so that a user is told of all at once.
ensure_environment() {
    mkdir -p "$cache"
    (
        flock 9 # another script may be at it
        is_environment_fresh || build_environment "$@"
    ) 9>"$cache/lock"
}

# ---- the claude program -------------------------------------------------------------------------

# Prints the version that pinned, older or newest stands for.
claude_version() {
    local version
    version=$("$python" -m tests.support.claude_versions "$1")
    if [ "$version" = latest ]; then
        ensure_npm
        version=$(npm view @anthropic-ai/claude-code version </dev/null) || fail "npm could not tell the newest version of claude"
    fi
    echo "$version"
}

ensure_npm() { command -v npm >/dev/null || install_packages npm; }

# Prints the path of the real claude of version $1, after fetching it where it is missing.
ensure_claude() {
    local version=$1 program partial
    program=$("$python" -m tests.support.claude_versions path "$version")
    mkdir -p "$cache/claude"
    (
        flock 9
        [ -x "$program" ] && exit
        ensure_npm
        say "fetching claude $version with npm into .cache"
        partial=$cache/claude/partial.$version
        rm -rf "$partial" "$cache/claude/$version"
        mkdir "$partial"
        # The program itself is in the package of the platform; no install script is needed.
        npm install --prefix "$partial" --ignore-scripts --include=optional --no-fund --no-audit --loglevel=error \
            "@anthropic-ai/claude-code@$version" </dev/null >"$cache/npm.log" 2>&1 ||
            fail "npm could not install claude $version: $(tail -n 5 "$cache/npm.log")"
        mv "$partial" "$cache/claude/$version"
        rm -rf "$cache/npm"
    ) 9>"$cache/claude/lock"
    [ -x "$program" ] || fail "npm installed claude $version, but there is no program at ${program#"$repository"/}"
    echo "$program"
}
