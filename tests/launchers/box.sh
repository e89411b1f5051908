#!/usr/bin/env bash
# Runs one of these scripts in a box of its own (tests/systemd/boot): own processes,
# network, files, systemd as process 1, users alice and bob. What a script would end or
# write by mistake is nothing of the machine: of that the box sees the files, and may
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
state=$(mktemp -d)

# The ground holds until its input ends, with everybody on it.
coproc ground { exec "$checkout/tests/systemd/ground" "$state"; }
holder=$ground_PID
clean_up() {
    # bash would tell that what it started is killed.
    exec 2>/dev/null {ground[1]}>&-
    wait "$holder" || true
    rmdir "$state"
}
trap clean_up EXIT
read -r _ <&"${ground[0]}"

# child PID: the one process that it has started.
child() {
    local children
    read -r children <"/proc/$1/task/$1/children"
    echo "${children%% *}"
}
namespace=$(child "$holder")
nsenter --target="$namespace" --mount --pid "$checkout/tests/systemd/boot" / "$state" "$checkout" \
    </dev/null >/dev/null 2>&1 &
boot=$!

inside() {
    nsenter --target="$init" --all env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root "$@"
}
# Whether it is up: each of its own has started the next, and the last is systemd.
is_up() {
    init=$boot
    while [ "$(cat "/proc/$init/comm")" != systemd ]; do
        init=$(child "$init") && [ "$init" ] || return 1
    done
    case $(inside systemctl is-system-running) in
    running | degraded) ;;
    *) return 1 ;;
    esac
}
for _ in $(seq 150); do
    if is_up 2>/dev/null; then break; fi
    sleep 0.2
done
inside ip link set lo up
inside useradd --create-home --shell /bin/bash --uid 4000 alice
inside useradd --create-home --shell /bin/bash --uid 4001 bob
inside systemd-run --quiet --pipe --wait --collect --unit=launchers --property=TimeoutStopSec=2 \
    --setenv=PATH="/usr/sbin:/usr/bin:/sbin:/bin${MORE_PATH:+:$MORE_PATH}" \
    --setenv=LANG=C.UTF-8 --setenv=HOME=/root /usr/bin/python3 "/srv/gpukill/tests/launchers/$1" "${@:2}"
