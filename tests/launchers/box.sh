#!/usr/bin/env bash
# Runs one of these scripts in a test box (tests/systemd/boot) with its own processes,
# network and files, systemd as process 1, and the users alice and bob. A script cannot end
# a process or change a file of the machine: the box sees the machine's files read-only.
#
#   cargo build -p gpukilld -p gpukillctl -p fake-nvml
#   sudo tests/launchers/box.sh torchrun.py
#
# Needs root, unshare, overlayfs, systemd, dbus and libpam-systemd, Python 3, and the
# programs that the script names, which may be in the directories of MORE_PATH outside of
# /tmp. Leaves nothing behind.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
state=$(mktemp -d)

# `ground` waits until its input ends, and ends all processes of the box with it.
coproc ground { exec "$checkout/tests/systemd/ground" "$state"; }
holder=$ground_PID
clean_up() {
    # bash would report the killed child.
    exec 2>/dev/null {ground[1]}>&-
    wait "$holder" || true
    rmdir "$state"
}
trap clean_up EXIT
read -r _ <&"${ground[0]}"

# child PID: prints the only child.
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
# Whether the box has booted: follows the chain of single children to systemd.
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
