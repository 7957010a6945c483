#!/usr/bin/env bash
# Boots a real systemd in User Mode Linux, which takes about ten seconds, and runs one command in it. Here is what
# namespaces lack: cgroup v2 with the memory controller, and a kernel that kills what uses too much.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: boot_uml.sh [-r ROOT] [-p PATH]... [-s SCRIPT] [-m MEMORY] [-t SECONDS] [-v] [--] COMMAND [ARGUMENT]...

  -r ROOT     the root file system, read-only (default $HIVE_TEST_ROOTFS, else /); /etc is a copy in memory; the
              home folders, /srv, /mnt, /tmp, /var/lib, /var/log and /var/tmp are empty and in memory
  -p PATH     a folder of the host, read-only at the same place inside, and open to every user there (repeatable)
  -s SCRIPT   a script that root runs inside before systemd starts
  -m MEMORY   the memory of the guest (default 768M)
  -t SECONDS  the time limit from boot to end (default 300)
  -v          when COMMAND fails, print the journal of the guest on stderr

COMMAND runs as root in a service, without stdin. stdout, stderr and exit code are passed on; death by signal N
gives 128 + N. Own codes: 64 usage, 69 something that is needed is missing, 70 no answer from the guest: it did
not boot, or the time was over. Needs the program linux.uml (package user-mode-linux); no rights and no KVM.
USAGE
}

say() { echo "boot_uml.sh: $*" >&2; }
die() { local code=$1; shift; say "$@"; exit "$code"; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=${HIVE_TEST_ROOTFS:-/} paths=() script='' memory=768M seconds=300 verbose=''
while getopts r:p:s:m:t:vh option; do
    case $option in
        r) root=$OPTARG ;;
        p) paths+=("$(realpath "$OPTARG")") ;;
        s) script=$(realpath "$OPTARG") ;;
        m) memory=$OPTARG ;;
        t) seconds=$OPTARG ;;
        v) verbose=yes ;;
        h) usage; exit 0 ;;
        *) usage >&2; exit 64 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { usage >&2; exit 64; }
command -v linux.uml >/dev/null || die 69 "the program linux.uml is missing"
[ -d "$root" ] || die 69 "there is no folder $root"

work=$(mktemp -d -t hsuml.XXXXXX)
shared=$work/shared # with the guest
guest_pid=''

# shellcheck disable=SC2317 # the traps call it
clean_up() {
    trap - EXIT INT TERM HUP
    # linux.uml has one process for each address space of the guest; all are in the process group of the first.
    if [ -n "$guest_pid" ]; then
        kill -KILL -- "-$guest_pid" 2>/dev/null || true
        wait "$guest_pid" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

write_shared() {
    mkdir "$shared"
    printf '%s\n' "${paths[@]}" >"$shared/paths"
    [ -z "$script" ] || cp "$script" "$shared/before-systemd"
    {
        echo '#!/bin/bash'
        # shellcheck disable=SC2016 # for the shell inside
        echo 'for number in 1 2; do stty -F "/dev/tty$number" -onlcr -echo; done 2>/dev/null'
        printf '%q ' "$@"
        printf '\nexit $?\n'
    } >"$shared/command"
    cat >"$shared/report" <<'REPORT'
#!/bin/sh
# Says how the command ended, and ends the machine.
[ "$SERVICE_RESULT" = success ] || journalctl --boot --no-pager --output=short-monotonic >/run/shared/journal 2>&1
echo "$EXIT_CODE $EXIT_STATUS" >/run/shared/ended
exec systemctl poweroff --force --force >/dev/null 2>&1
REPORT
    chmod 755 "$shared/command" "$shared/report"
}

boot() {
    cp "$here/boot_files.sh" "$work/"
    sed "s#@WORK@#$work#; s#@ROOT@#$(realpath "$root")#" "$here/uml_init.sh" >"$work/init"
    chmod 755 "$work/init"
    exec 3>&1 4>&2
    # A session of its own, whose process group clean_up kills; timeout makes no further one there.
    setsid timeout --kill-after=5 "$seconds" linux.uml mem="$memory" rootfstype=hostfs rootflags=/ ro \
        init="$work/init" con=null con0=null,fd:1 con1=null,fd:3 con2=null,fd:4 ssl=null umid="guest$$" \
        uml_dir="$work" quiet </dev/null >"$work/kernel.log" 2>&1 &
    guest_pid=$!
    exec 3>&- 4>&-
}

write_shared "$@"
boot
status=0
wait "$guest_pid" || status=$?
if [ ! -s "$shared/ended" ]; then
    grep -avE '^ \[<|^$' "$work/kernel.log" | tail -n 40 >&2
    die 70 "no answer from the guest; linux.uml ended with $status (124: the $seconds s were over)"
fi
[ -z "$verbose" ] || [ ! -s "$shared/journal" ] || cat "$shared/journal" >&2
read -r how what <"$shared/ended"
[ "$how" != exited ] || exit "$what"
exit $((128 + $(kill -l "$what" 2>/dev/null || echo 0)))
