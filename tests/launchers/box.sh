#!/bin/bash
# Runs one of these scripts in a box of its own: own processes, network, files,
# systemd as process 1, users alice and bob. What a script would end or write by
# mistake is nothing of the machine: of that the box sees the files, and may
# change none.
#
#   cargo build -p gpukilld -p gpukillctl -p fake-nvml
#   sudo tests/launchers/box.sh torchrun.py
#
# Needs root, unshare, overlayfs, systemd, dbus and libpam-systemd, Python 3, and
# what the script says, also in the directories of MORE_PATH, if they are not in
# /tmp. Nothing of it is left when it ends.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
root=$(mktemp -d)
group=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET)/gpukill-box-$$
init=
mkdir "$group"
(
    # Before the namespace: its root is where whoever makes it is.
    echo "$BASHPID" >"$group/cgroup.procs"
    exec unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup --propagation private bash -ec '
    root=$1 checkout=$2
    mount -t tmpfs -o mode=755 tmpfs "$root"
    mkdir "$root"/{upper,work,box}
    # Writes go to the upper directory, which is memory.
    mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/box"
    cd "$root/box"
    # No directory of the machine may be there to write to: systemd empties /tmp.
    for place in tmp run dev; do mount -t tmpfs -o mode=755 tmpfs "$place"; done
    chmod 1777 tmp
    mkdir -p srv/gpukill
    mount --bind "$checkout" srv/gpukill
    mount -o remount,bind,ro srv/gpukill
    mount -t proc proc proc
    # The kernel is that of the machine, but for its network.
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
    mount --bind proc/sys/net proc/sys/net
    mount -o remount,bind,rw proc/sys/net
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mkdir dev/pts dev/shm
    chmod 1777 dev/shm
    for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229; do
        IFS=: read -r name major minor <<<"$node"
        mknod -m 666 "dev/$name" c "$major" "$minor"
    done
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    rm -f etc/systemd/system/*.wants/* usr/lib/tmpfiles.d/tmp.conf
    : >etc/fstab
    hostname box
    mkdir old
    pivot_root . old
    cd /
    umount -l /old
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=unshare LANG=C.UTF-8 \
        /lib/systemd/systemd --system --unit=multi-user.target --log-target=journal --show-status=0 \
        </dev/null >/dev/null 2>&1
' box "$root" "$checkout"
) &
unshare=$!
clean_up() {
    exec 2>/dev/null
    # With it ends process 1, and with that all in the box.
    kill -KILL "$unshare" || true
    wait || true
    rmdir "$root" || true
    for _ in $(seq 50); do
        find "$group" -depth -type d -exec rmdir {} + || true
        [ -d "$group" ] || break
        sleep 0.1
    done
}
trap clean_up EXIT

inside() {
    nsenter -t "$init" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root "$@"
}
is_up() {
    init=$(cat "/proc/$unshare/task/$unshare/children")
    init=${init%% *}
    [ -n "$init" ] || return 1
    case $(inside systemctl is-system-running 2>/dev/null) in
    running | degraded) return 0 ;;
    *) return 1 ;;
    esac
}
for _ in $(seq 150); do
    if is_up; then break; fi
    sleep 0.2
done
inside ip link set lo up
inside useradd --create-home --shell /bin/bash --uid 4000 alice
inside useradd --create-home --shell /bin/bash --uid 4001 bob
inside systemd-run --quiet --pipe --wait --collect --unit=launchers --property=TimeoutStopSec=2 \
    --setenv=PATH="/usr/sbin:/usr/bin:/sbin:/bin${MORE_PATH:+:$MORE_PATH}" \
    --setenv=LANG=C.UTF-8 --setenv=HOME=/root /usr/bin/python3 "/srv/gpukill/tests/launchers/$1" "${@:2}"
