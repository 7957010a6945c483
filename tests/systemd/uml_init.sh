#!/bin/sh
# The first process of the guest that boot_uml.sh starts: makes the root file system ready and becomes systemd.
# Its end is a panic of the guest's kernel, which ends linux.uml.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
work=@WORK@ # on the host, whose files are at / for now
# shellcheck source=tests/systemd/boot_files.sh
. "$work/boot_files.sh"

mount_system() {
    mount -t tmpfs -o mode=755 tmpfs /mnt
    mkdir /mnt/root
    mount -t hostfs -o "@ROOT@,ro" none /mnt/root # overlayfs is a module here, and there are no modules
    cd /mnt/root
    mount -t proc proc proc
    mount -t sysfs sys sys
    mount -t devtmpfs dev dev
    mkdir -p dev/pts dev/shm
    mount -t devpts -o gid=5,mode=620,ptmxmode=0666 devpts dev/pts
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
    mount -t cgroup2 cgroup2 sys/fs/cgroup
}

# What must be writable is a copy (/etc) or empty.
mount_writable() {
    mkdir run/etc
    cp -a etc/. run/etc/
    mount --bind run/etc etc
    for folder in var/log var/tmp var/lib home root mnt srv; do
        [ ! -d "$folder" ] || mount -t tmpfs -o mode=755 tmpfs "$folder"
    done
    chmod 1777 var/tmp
}

is_open() { [ $((0$(stat -c %a "$1") & 1)) = 1 ]; }

# Prints the uppermost folder on the way to $1 that other users cannot pass, without its first slash.
closed_above() {
    passed=''
    rest=${1#/}
    while [ "$rest" != "${rest#*/}" ]; do
        passed=$passed${passed:+/}${rest%%/*}
        rest=${rest#*/}
        [ -d "$passed" ] || return 0
        is_open "$passed" || { echo "$passed"; return 0; }
    done
}

# Shows a folder of the host at the same place. What is closed to others on the host is covered or built anew.
mount_path() {
    closed=$(closed_above "$1")
    [ -z "$closed" ] || mount -t tmpfs -o mode=755 tmpfs "$closed"
    mkdir -p ".$1" 2>/dev/null || [ -d ".$1" ] || mount -t tmpfs -o mode=755 tmpfs ".$(dirname "$1")"
    mkdir -p ".$1"
    if is_open "$1"; then
        mount -t hostfs -o "$1,ro" none ".$1"
    else
        mount_entries "$1"
    fi
}

mount_entries() {
    number=$((${number-0} + 1))
    mkdir -p "run/host/$number"
    mount -t hostfs -o "$1,ro" none "run/host/$number"
    mount -t tmpfs -o mode=755 tmpfs ".$1"
    for entry in "run/host/$number"/* "run/host/$number"/.[!.]*; do
        inside=.$1/${entry##*/}
        if [ -L "$entry" ]; then
            cp -P "$entry" "$inside"
        elif [ -d "$entry" ]; then
            mkdir "$inside"
            mount --bind "$entry" "$inside"
        elif [ -f "$entry" ]; then
            : >"$inside"
            mount --bind "$entry" "$inside"
        fi
    done
}

# The command is a service that the machine needs; its end is the end of the machine.
write_command() {
    cat >run/systemd/system/command.service <<'UNIT'
[Unit]
After=basic.target dbus.socket systemd-logind.service systemd-user-sessions.service
[Service]
Type=oneshot
TimeoutStartSec=infinity
KillMode=mixed
StandardInput=null
StandardOutput=file:/dev/tty1
StandardError=file:/dev/tty2
ExecStart=/run/shared/command
ExecStopPost=/run/shared/report
UNIT
}

mount_system
mount_writable
mkdir -p run/shared
mount -t hostfs -o "$work/shared" none run/shared
while read -r path; do
    [ -z "$path" ] || mount_path "$path"
done <run/shared/paths
write_machine command.service
write_command
[ ! -f run/shared/before-systemd ] || chroot . /bin/bash /run/shared/before-systemd
program=$(systemd_program)
pivot_root . mnt
cd /
umount -l /mnt 2>/dev/null || true
exec env -i "PATH=$PATH" LANG=C.UTF-8 \
    "/$program" --system --unit=machine.target --log-target=journal --show-status=no
