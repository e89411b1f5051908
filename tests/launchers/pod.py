"""gpukilld in a container, with what packaging/kubernetes/daemonset.yaml gives it,
beside a container of root's. Needs podman and crun, and the image as an archive:

  podman build --file packaging/container/Containerfile --tag gpukill:0.1.0 .
  podman save --output target/gpukill.tar gpukill:0.1.0
"""

import json
import os
import re
import subprocess
from pathlib import Path

from stage import BUILT, HOME, WORKER, Stage, crowd, eventually, needs, run

needs("podman", "crun")
ARCHIVE = Path("/srv/gpukill/target/gpukill.tar")
if not ARCHIVE.exists():
    raise SystemExit(f"skipped: there is no {ARCHIVE}")
PODMAN = ("podman",)
RECIPES = Path("/srv/gpukill/packaging")
CAPABILITIES = ("KILL", "SYS_PTRACE", "DAC_READ_SEARCH")
USER = 2100000000
# What podman would give besides, containerd does not: capabilities that whatever is
# executed keeps. And which devices may be opened, a box within a box cannot say.
RUNTIME = """#!/usr/bin/python3
import json, os, sys
if "create" in sys.argv:
    file = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"
    spec = json.load(open(file))
    for which in ("ambient", "inheritable"):
        spec["process"]["capabilities"].pop(which, None)
    spec["linux"]["resources"]["devices"] = [{"allow": True, "access": "rwm"}]
    json.dump(spec, open(file, "w"))
os.execvp("crun", ["crun", *sys.argv[1:]])
"""


def says(what, is_so, more=""):
    print(f"{'OK' if is_so else 'WRONG'}: {what}" + (f"\n{more}" if more and not is_so else ""))


class Pod(Stage):
    """A box whose gpukilld is in a container."""

    def start(self):
        self.socket = Path("/run/gpukill/gpukilld.sock")
        # As kubelet lays out a ConfigMap: links, in a directory that all may write.
        settings = HOME / "settings"
        there = settings / "..there"
        there.mkdir(parents=True, mode=0o755)
        settings.chmod(0o777)
        (settings / "..data").symlink_to("..there")
        for name in ("gpukilld.toml", "guard.toml"):
            (settings / name).symlink_to(f"..data/{name}")
        # The box's PIDs are not the first: the one thing that is not as on a node.
        text = '[daemon]\npoll_interval = "200ms"\nforeign_pids = true\n'
        (there / "gpukilld.toml").write_text(text + (RECIPES / "container/gpukilld.toml").read_text())
        # Whom it names is warned, and not ended while the script runs.
        (there / "guard.toml").write_text(
            "[global]\nenabled = true\ndry_run = false\n[user_policies.bob]\nduration_limit_hours = 0.001\n"
        )
        runtime = HOME / "runtime"
        runtime.write_text(RUNTIME)
        runtime.chmod(0o755)
        # As the init container does.
        for place in ("/run/gpukill", "/var/lib/gpukill"):
            Path(place).mkdir(mode=0o755, exist_ok=True)
            os.chown(place, USER, USER)
        run(*PODMAN, "load", "--input", str(ARCHIVE))
        ran = run(
            *PODMAN, f"--runtime={runtime}", "run", "--detach", "--name=gpukilld", "--pid=host",
            "--network=none", "--cap-drop=all", *(f"--cap-add={name}" for name in CAPABILITIES),
            "--security-opt=no-new-privileges", "--read-only", "--tmpfs=/tmp",
            "--passwd=false", "--group-add=5", "--cgroupns=private",
            # What a box within a box cannot set.
            "--pids-limit=-1", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
            "--volume=/run/gpukill:/run/gpukill", "--volume=/var/lib/gpukill:/var/lib/gpukill",
            f"--volume={settings}:/etc/gpukill:ro",
            # As NVIDIA's toolkit brings NVML.
            f"--volume={BUILT}/libnvidia_ml_stand_in.so:/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1:ro",
            f"--volume={HOME}:{HOME}:ro", f"--env=FAKE_NVML_STATE={HOME}/state.json",
            "localhost/gpukill:0.1.0", check=False,
        )  # fmt: skip
        if ran.returncode:
            raise SystemExit(f"podman does not start a container: {ran.stderr}")

    def rows(self, user="root"):
        document = json.loads(self.ctl(user, "list", "--details", "-o", "json").stdout)
        return {row["pid"]: row for row in document["procs"]}


def worker(user):
    """A worker of this user's, with a terminal that they can be warned on."""
    words = ["runuser", "-u", user, "--", "script", "--quiet", "--flush", "--command", f"{WORKER} {user}", f"/tmp/{user}.said"]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


# What overlays lie on is no overlay itself.
Path("/var/lib/containers").mkdir(exist_ok=True)
run("mount", "-t", "tmpfs", "tmpfs", "/var/lib/containers")
run("groupadd", "--system", "gpukill-operators")
run("ln", "-sf", "../usr/share/zoneinfo/Asia/Kolkata", "/etc/localtime")
stage = Pod()
daemon = next(pid for pid, it in crowd().items() if it["name"] == "gpukilld" and "--sensor" not in it["command"])


def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


it = status_of(daemon)
says("it is a user of its own, with three capabilities", (it["Uid"].split()[0], it["CapEff"], it["CapAmb"]) == (str(USER), "0000000000080024", "0" * 16), it)
says("it can gain nothing, and its system calls are filtered", (it["NoNewPrivs"], it["Seccomp"], it["CapBnd"]) == ("1", "2", "0000000000080024"), it)
sensor = [pid for pid, it in crowd().items() if it["parent"] == daemon]
says("the sensor has no capability", len(sensor) == 1 and status_of(sensor[0])["CapPrm"] == "0" * 16)

for user in ("alice", "bob"):
    worker(user)
stage.workers(2)
run(
    *PODMAN, "run", "--detach", "--name=train", "--network=none", "--privileged", "--pids-limit=-1",
    "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--volume=/srv/gpukill:/srv/gpukill:ro",
    "--volume=/run/gpukill:/run/gpukill", "--rootfs", "/:O", *WORKER.split(), "root",
)  # fmt: skip
stage.workers(3)


def by_user():
    """The process of each, when everybody has a name."""
    rows = {row["user"]: row for row in stage.rows().values()}
    return rows if set(rows) == {"alice", "bob", "root"} else None


rows = eventually("people have names", by_user)
print(stage.ctl("alice", "list", "--details").stdout)
bobs, contained = rows["bob"]["pid"], rows["root"]["pid"]
says("a container has a name", rows["root"]["container_name"] == "train", rows["root"])

refused = stage.ctl("alice", "kill", str(bobs))
says("alice may not end bob's", refused.returncode == 4, refused)
client = (str(BUILT / "gpukillctl"), "kill", str(bobs), "--dry-run")
inside = run(*PODMAN, "exec", "train", *client, check=False)
says("root of another container may only look", inside.returncode == 4, inside)
reset = stage.ctl("root", "reset", "--gpu", "0", "--force", "--yes")
says("a reset is not supported", reset.returncode == 5, reset)
edit = stage.ctl("root", "guard", "user", "set", "alice", "--memory-limit", "40")
says("rules are not edited", edit.returncode == 1 and "Read-only file system" in edit.stderr, edit)


def told_when():
    """When bob's job is ended, as his terminal has it."""
    return re.search(r"at (\d\d):(\d\d)", Path("/tmp/bob.said").read_text(errors="replace"))


at = eventually("bob is warned on his terminal", told_when, patience=60)
# Python took the zone of the box when it started.
now = run("date", "+%H:%M").stdout.split(":")
minutes = (int(at[1]) * 60 + int(at[2]) - int(now[0]) * 60 - int(now[1])) % (24 * 60)
says("bob is warned on his terminal, by the clock of the box", minutes <= 5, at)

run("usermod", "-aG", "gpukill-operators", "alice")
right = "may end anybody's processes"
eventually("alice is an operator", lambda: right in stage.ctl("alice", "status").stdout, patience=45)
stage.kill("bob's, by alice", bobs, {bobs}, scope="process")
stage.kill("a container, by root", contained, {contained}, "--force", user="root", scope="container")

probe = run(*PODMAN, "exec", "gpukilld", "/usr/bin/gpukillctl", "status", check=False)
says("the probe is well", probe.returncode == 0 and "fault" not in probe.stdout, probe)
print(probe.stdout)
run(*PODMAN, "stop", "--time=15", "gpukilld")
state = json.loads(run(*PODMAN, "inspect", "gpukilld").stdout)[0]["State"]
says("it ends when it is told to", state["ExitCode"] == 0, run(*PODMAN, "logs", "gpukilld", check=False))
