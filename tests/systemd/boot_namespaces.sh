#!/usr/bin/env bash
# Boots a real systemd in fresh namespaces, which takes about a second, and runs one command in it.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: boot_namespaces.sh [-r ROOT] [-p PATH]... [-s SCRIPT] [-v] [--] COMMAND [ARGUMENT]...

  -r ROOT     the root file system; nothing is written to it (default $HIVE_TEST_ROOTFS, else /)
  -p PATH     a folder of the host, at the same place inside, and open to every user there; what is
              written to it stays inside (repeatable)
  -s SCRIPT   a script that root runs inside before systemd starts
  -v          when COMMAND fails, print the journal of the machine on stderr

COMMAND runs as root in a scope. Standard streams and exit code are passed on; death by signal N
gives 128 + N. Own codes: 64 usage, 69 something that is needed is missing, 70 the machine did not boot. In the
end every process, mount and cgroup of the machine is gone. There is no memory controller: see boot_uml.sh.
USAGE
}

say() { echo "boot_namespaces.sh: $*" >&2; }
die() { local code=$1; shift; say "$@"; exit "$code"; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
safe_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
BOOT_SECONDS=30

# ---- in the namespaces of the machine, before systemd -------------------------------------------

mount_system() {
    mount -t proc proc proc
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys # what sysctl.d sets must not reach the host
    mount -t sysfs -o ro sysfs sys    # read-only: this is how systemd knows to start no udev
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
}

mount_devices() {
    local name
    mount -t tmpfs -o mode=755 tmpfs dev
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    for name in null zero full random urandom tty; do
        touch "dev/$name"
        mount --bind "/dev/$name" "dev/$name"
    done
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    ln -s fd/0 dev/stdin
    ln -s fd/1 dev/stdout
    ln -s fd/2 dev/stderr
    ln -s null dev/console # nothing goes to the console of the host
}

# Lays a folder of the host over the same place inside, and opens it and the way to it; the host keeps its modes.
mount_path() {
    local path=$1 layer=$2
    mkdir -p ".$path" "$layer/upper" "$layer/work"
    mount -t overlay overlay -o "lowerdir=$path,upperdir=$layer/upper,workdir=$layer/work" ".$path"
    chmod o+rx ".$path"
    while path=$(dirname "$path"); [ "$path" != / ]; do chmod o+x ".$path"; done
}

# Becomes systemd in the root file system that it makes ready.
become_machine() {
    local layers=$BOOT_WORK path program number=0
    mount -t overlay overlay -o "lowerdir=$BOOT_ROOT,upperdir=$layers/upper,workdir=$layers/work" "$layers/root"
    cd "$layers/root"
    mount_system
    mount_devices
    while IFS= read -r path; do
        number=$((number + 1))
        [ -z "$path" ] || mount_path "$path" "$layers/$number"
    done <<<"$BOOT_PATHS"
    # shellcheck source=tests/systemd/boot_files.sh
    source "$here/boot_files.sh"
    write_machine ""
    rm -rf var/log/journal # a journal in memory only
    if [ -n "$BOOT_SCRIPT" ]; then
        cp "$BOOT_SCRIPT" run/before-systemd
        chroot . /bin/bash /run/before-systemd
    fi
    program=$(systemd_program)
    mkdir -p .host
    pivot_root . .host
    cd /
    umount -l /.host
    rmdir /.host
    mount --make-rshared / # credentials are mounted by a child of systemd, and have to be seen by all
    exec env -i container=namespaces PATH="$safe_path" LANG=C.UTF-8 \
        "/$program" --system --unit=machine.target --log-target=journal --show-status=no
}

# ---- around the machine --------------------------------------------------------------------------

boot_pid='' run_pid='' work='' group=''

# Removes the cgroup with everything in it, as soon as the kernel lets it.
remove_group() {
    local tries=100
    while [ -d "$group" ] && [ $tries -gt 0 ]; do
        [ ! -e "$group/cgroup.kill" ] || echo 1 2>/dev/null >"$group/cgroup.kill" || true
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ ! -d "$group" ] || sleep 0.05
        tries=$((tries - 1))
    done
}

clean_up() {
    trap - EXIT INT TERM HUP
    if [ -n "$boot_pid" ]; then
        kill -KILL "$boot_pid" 2>/dev/null || true # and with it, all that is in its PID namespace
        wait "$boot_pid" 2>/dev/null || true
    fi
    [ -z "$run_pid" ] || wait "$run_pid" 2>/dev/null || true
    [ -z "$group" ] || remove_group
    cd /
    umount -l "$work" 2>/dev/null || true
    rmdir "$work" 2>/dev/null || true
}

start_machine() {
    # The child joins the cgroup first, so that this is the root of its cgroup namespace.
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        BOOT_STAGE=machine exec unshare --pid --fork --kill-child --mount --cgroup --uts --ipc --net \
            bash "$here/boot_namespaces.sh" </dev/null >/dev/null 2>"$work/boot.log"
    ) &
    boot_pid=$!
}

# Prints the process id of the machine's systemd once it takes commands.
wait_for_systemd() {
    local init inside tries=$((BOOT_SECONDS * 40))
    while [ $tries -gt 0 ]; do
        init=$(tr -d ' ' 2>/dev/null <"/proc/$boot_pid/task/$boot_pid/children" || true)
        inside=/proc/$init/root # the file system as the machine sees it
        if [ -n "$init" ] && [ "$(cat "/proc/$init/comm" 2>/dev/null)" = systemd ] &&
            [ -S "$inside/run/systemd/private" ]; then
            echo "$init"
            return 0
        fi
        kill -0 "$boot_pid" 2>/dev/null || break
        sleep 0.025
        tries=$((tries - 1))
    done
    cat "$work/boot.log" >&2
    return 1
}

# Boots the machine, runs the command in it and exits as that did.
run_in_machine() {
    local init enter status=0
    work=$(mktemp -d -t hsns.XXXXXX)
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    mount -t tmpfs -o mode=755 tmpfs "$work"
    mkdir "$work"/{cgroups,upper,work,root}
    mount -t cgroup2 cgroup2 "$work/cgroups" || die 69 "the kernel has no cgroup v2"
    mkdir "$work/cgroups/machine.$$" || die 69 "no cgroup can be made"
    group=$work/cgroups/machine.$$
    export BOOT_WORK=$work
    start_machine
    init=$(wait_for_systemd) || die 70 "the machine did not boot"
    enter=(nsenter -t "$init" -a -- env -i --chdir=/ "PATH=$safe_path" LANG=C.UTF-8)
    # A state of "degraded" is good enough.
    timeout "$BOOT_SECONDS" "${enter[@]}" systemctl is-system-running --wait >/dev/null 2>&1 || true
    # A scope, since that needs no bus once it is made: the command may restart it. In the background, since bash
    # acts on our traps only while it waits.
    "${enter[@]}" systemd-run --quiet --scope --collect -- "$@" <&0 &
    run_pid=$!
    wait "$run_pid" || status=$?
    run_pid=''
    if [ "$status" != 0 ] && [ -n "$BOOT_VERBOSE" ]; then
        "${enter[@]}" journalctl --boot --no-pager --output=short-monotonic >&2 || true
    fi
    exit "$status"
}

case ${BOOT_STAGE-} in
    machine) become_machine ;;
    around) run_in_machine "$@" ;;
esac

root=${HIVE_TEST_ROOTFS:-/} paths=() script='' verbose=''
while getopts r:p:s:vh option; do
    case $option in
        r) root=$OPTARG ;;
        p) paths+=("$(realpath "$OPTARG")") ;;
        s) script=$(realpath "$OPTARG") ;;
        v) verbose=yes ;;
        h) usage; exit 0 ;;
        *) usage >&2; exit 64 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { usage >&2; exit 64; }
[ "$(id -u)" = 0 ] || die 69 "needs root"
[ -d "$root" ] || die 69 "there is no folder $root"
for program in unshare nsenter pivot_root ip setpriv systemctl systemd-run; do
    command -v "$program" >/dev/null || die 69 "the program $program is missing"
done
unshare --mount --pid --fork --cgroup --uts --ipc --net true 2>/dev/null || die 69 "namespaces are not allowed here"

BOOT_ROOT=$(realpath "$root") BOOT_PATHS=$(printf '%s\n' "${paths[@]}") BOOT_SCRIPT=$script BOOT_VERBOSE=$verbose
export BOOT_ROOT BOOT_PATHS BOOT_SCRIPT BOOT_VERBOSE
# The scaffold of mounts is in a namespace of its own, where the host does not see it.
BOOT_STAGE=around exec unshare --mount --propagation private bash "$here/boot_namespaces.sh" "$@"
