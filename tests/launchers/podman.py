"""Containers of root, as with Docker. Their image is the file system of the box. Needs
podman and crun."""

import json
from pathlib import Path

from test_box import WORKER, TestBox, process_table, require_programs, run

require_programs("podman", "crun")
test_box = TestBox()
# The upper layer of an overlay cannot be on an overlay.
PODMAN = ("podman", "--root=/run/storage", "--runroot=/run/storage-run")
# Two workers below a shell that would then run another command. As process 1 of its
# container a shell receives only signals that it handles.
words = f"trap 'exit 1' TERM; {WORKER} one & {WORKER} two; sleep 1000"


def inside(container):
    """The pids of all processes of a container."""
    state = json.loads(run(*PODMAN, "inspect", container).stdout)[0]["State"]
    first = state["Pid"]
    group = process_table()[first]["cgroup"]
    return {pid for pid, it in process_table().items() if it["cgroup"] == group}


def start(name):
    ran = run(
        *PODMAN, "run", "--detach", "--name", name, "--network=none",
        # Options that a box within a box cannot set are disabled.
        "--privileged", "--pids-limit=-1", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
        "--volume", "/srv/gpukill:/srv/gpukill:ro", "--rootfs", "/:O", "sh", "-c", words,
        check=False,
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"podman does not start a container: {ran.stderr}")


start("train")
workers = test_box.workers(2)
start("other")
test_box.workers(4)
test_box.kill("a container of root, by alice", workers[0], set(), scope="container")
test_box.kill("a container", workers[0], inside("train"), user="root", scope="container")
left = test_box.workers(2)
test_box.kill("the other container, by its job", left[0], inside("other"), user="root")
test_box.workers(0)
words = words.partition("; ")[2]
start("deaf")
pids = test_box.workers(2)
test_box.kill("a container with a shell that reacts only to SIGKILL", pids[0], inside("deaf"), "--force", user="root")
test_box.workers(0)
