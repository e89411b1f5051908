#!/usr/bin/env bash
# Runs a command with this machine's processes, but with the /etc and the environment of
# another machine: users alice, bob and carol, names for uids in use, the groups
# gpukill-operators and gpukill-admin, rules in mode enforce and settings of another gpukilld
# in /etc/gpukill, subordinate uids, an unusual login.defs, and unusual variables. Two busy
# loops run at the same time. A test that passes here depends on none of these.
#
#   cargo test --workspace --no-run
#   sudo tests/launchers/crowded-box.sh cargo test -p gpukill-tests --test suite
#
# LOOPS=0 leaves out the busy loops; LOOPS=8 starts eight. Needs root, unshare and
# overlayfs. The machine's files stay unchanged: writes go to a tmpfs that disappears with
# the command, except below the checkout, the target directory and /tmp.
set -euo pipefail

if [ "${1-}" != --inside ]; then
    [ $# -gt 0 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
    state=$(mktemp -d)
    trap 'rmdir "$state"' EXIT
    status=0
    unshare --mount --propagation private -- "$0" --inside "$state" "$@" || status=$?
    exit $status
fi
state=$2
shift 2

checkout=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$checkout/target}
here=$PWD
mkdir -p "$target"

# The root of this mount namespace becomes an overlay, so that boxes booted over "/"
# (tests/systemd/boot) see the same files: an overlay does not see mounts below it.
mount -t tmpfs -o mode=755 tmpfs "$state"
mkdir "$state/upper" "$state/work" "$state/root"
root=$state/root
mount -t overlay -o "lowerdir=/,upperdir=$state/upper,workdir=$state/work" overlay "$root"
for path in /proc /sys /dev /tmp "$checkout" "$target"; do
    mkdir -p "$root$path"
    mount --rbind "$path" "$root$path"
done
cd "$root"
mkdir -p run/outside
pivot_root . run/outside
cd "$here"
umount --lazy /run/outside
rmdir /run/outside

# user NAME UID: adds a user and removes others with this name or uid.
user() {
    sed -i -e "/^$1:/d" -e "/^[^:]*:[^:]*:$2:/d" /etc/passwd /etc/group
    sed -i "/^$1:/d" /etc/shadow
    echo "$1:x:$2:$2::/home/$1:/bin/bash" >> /etc/passwd
    echo "$1:x:$2:" >> /etc/group
    echo "$1:*:19000:0:99999:7:::" >> /etc/shadow
    mkdir -p "/home/$1"
    chown "$2:$2" "/home/$1"
}
user alice 1000
user bob 1001
user carol 1002
for uid in $(seq 60000 60012) $(seq 60101 60115) 60141 60142 4100000 4100001; do
    echo "person$uid:x:$uid:$uid::/:/bin/sh" >> /etc/passwd
    echo "person$uid:x:$uid:" >> /etc/group
done
printf 'gpukill-operators:x:986:alice\ngpukill-admin:x:985:bob\n' >> /etc/group
printf 'alice:100000:65536\nbob:165536:65536\ncarol:60000:200\n' | tee /etc/subuid > /etc/subgid
if [ -e /etc/login.defs ]; then
    sed -i -e 's/^UID_MIN.*/UID_MIN 500/' -e 's/^UID_MAX.*/UID_MAX 70000/' /etc/login.defs
fi
mkdir -p /etc/gpukill/rules /run/gpukill
cat > /etc/gpukill/rules/guard.toml << 'RULES'
mode = "enforce"
[default]
memory_limit_gb = 0.001
[user_policies.alice]
memory_limit_gb = 1
RULES
printf 'not = [valid\n' > /etc/gpukill/rules/rogue.toml
cat > /etc/gpukill/gpukilld.toml << 'SETTINGS'
[daemon]
socket = "/run/gpukill/elsewhere.sock"
poll_interval = "7s"
[access]
hide_other_users = true
operator_group = "alice"
[guard]
mode = "enforce"
SETTINGS
mkdir -p /odd/home/.config/gpukill /odd/config/gpukill /odd/data /odd/runtime
for directory in /odd/home/.config /odd/config; do
    printf '[client]\nsocket = "/nowhere"\noutput = "json"\n' > "$directory/gpukill/gpukillctl.toml"
done
chmod 700 /odd/runtime

export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
export CARGO_TARGET_DIR=$target
export HOME=/odd/home XDG_CONFIG_HOME=/odd/config XDG_DATA_HOME=/odd/data XDG_STATE_HOME=/odd/data
export XDG_RUNTIME_DIR=/odd/runtime XDG_CACHE_HOME=/odd/data
export GPUKILL_SOCKET=/nowhere GPUKILL_OUTPUT=json GPUKILL_CONFIG=/odd/config/none.toml
export GPUKILL_DAEMON_SOCKET=/nowhere GPUKILL_GUARD_MODE=enforce GPUKILL_NOT_A_KEY=1
export LANG=de_DE.UTF-8 LANGUAGE=de TZ=Asia/Kolkata
export RUST_LOG=trace NO_COLOR=1 CLICOLOR_FORCE=1 COLUMNS=37 LINES=3 TERM=dumb PAGER=false
export EDITOR=false JOURNAL_STREAM=1:2 NOTIFY_SOCKET=/nowhere SUDO_USER=alice USER=alice LOGNAME=alice

loops=()
trap 'kill "${loops[@]}" 2> /dev/null || true' EXIT
for _ in $(seq "${LOOPS:-2}"); do
    while :; do :; done &
    loops+=($!)
done
status=0
# bash itself would warn about this locale.
env LC_ALL=tr_TR.ISO-8859-9 "$@" || status=$?
exit $status
