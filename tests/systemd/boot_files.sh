# What both ways to boot a machine put into its file system. Sourced by them; works in dash, too.
# shellcheck shell=sh

# Units that need hardware, would reach the host, or only cost time.
WITHOUT_UNITS="systemd-timesyncd.service systemd-resolved.service systemd-networkd.service systemd-udevd.service
    systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket
    systemd-modules-load.service modprobe@.service kmod-static-nodes.service systemd-firstboot.service
    systemd-sysusers.service ldconfig.service systemd-hwdb-update.service systemd-journal-catalog-update.service
    systemd-update-done.service systemd-update-utmp.service systemd-pcrphase-sysinit.service
    systemd-random-seed.service systemd-remount-fs.service apt-daily.timer apt-daily-upgrade.timer
    e2scrub_all.timer fstrim.timer man-db.timer dpkg-db-backup.timer dev-hugepages.mount dev-mqueue.mount
    sys-kernel-debug.mount sys-kernel-tracing.mount getty@.service autovt@.service serial-getty@.service
    console-getty.service"

# Writes into the root file system at . what is booted: machine.target, which needs the units named in $1 as well.
write_machine() {
    mkdir -p etc/systemd/system run/systemd/system
    for unit in $WITHOUT_UNITS; do ln -sf /dev/null "run/systemd/system/$unit"; done
    cat >run/systemd/system/machine.target <<UNIT
[Unit]
Requires=basic.target dbus.socket $1
Wants=systemd-logind.service systemd-user-sessions.service
After=basic.target dbus.socket systemd-logind.service systemd-user-sessions.service
AllowIsolate=yes
UNIT
    rm -f etc/fstab etc/machine-id
    : >etc/fstab
    echo 0123456789abcdef0123456789abcdef >etc/machine-id
    ip link set lo up
}

# Prints the path of systemd in the root file system at . without its first slash.
systemd_program() {
    for program in lib/systemd/systemd usr/lib/systemd/systemd run/current-system/systemd/lib/systemd/systemd; do
        if [ -x "$program" ]; then echo "$program"; return 0; fi
    done
    echo "there is no systemd in the root file system" >&2
    return 1
}
