"""Containers of root's, as Docker's are. The box's own files are their image. Needs
podman and crun."""

import json
from pathlib import Path

from stage import WORKER, Stage, crowd, needs, run

needs("podman", "crun")
stage = Stage()
# What overlays lie on is no overlay itself.
PODMAN = ("podman", "--root=/run/storage", "--runroot=/run/storage-run")
# Two workers below a shell that would go on with another command. As process 1 of
# its container a shell gets no signal that it does not handle.
words = f"trap 'exit 1' TERM; {WORKER} one & {WORKER} two; sleep 1000"


def inside(container):
    """The pids of all that run in a container of this name."""
    state = json.loads(run(*PODMAN, "inspect", container).stdout)[0]["State"]
    first = state["Pid"]
    group = crowd()[first]["cgroup"]
    return {pid for pid, it in crowd().items() if it["cgroup"] == group}


def start(name):
    ran = run(
        *PODMAN, "run", "--detach", "--name", name, "--network=none",
        # Without what a box within a box cannot set.
        "--privileged", "--pids-limit=-1", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
        "--volume", "/srv/gpukill:/srv/gpukill:ro", "--rootfs", "/:O", "sh", "-c", words,
        check=False,
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"podman does not start a container: {ran.stderr}")


start("train")
workers = stage.workers(2)
start("other")
stage.workers(4)
stage.kill("alice and root's container", workers[0], set(), scope="container")
stage.kill("a container", workers[0], inside("train"), user="root", scope="container")
left = stage.workers(2)
stage.kill("the other container, by its job", left[0], inside("other"), user="root")
stage.workers(0)
words = words.partition("; ")[2]
start("deaf")
pids = stage.workers(2)
stage.kill("a container whose shell heeds SIGKILL alone", pids[0], inside("deaf"), "--force", user="root")
stage.workers(0)
