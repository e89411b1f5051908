"""gpukilld in a container, with what packaging/kubernetes/daemonset.yaml gives it,
beside a container of root's. Needs podman and crun, and the image as an archive:

  podman save --output target/gpukill.tar gpukill:0.1.0
"""

import json
import os
import shutil
import signal
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
        settings = HOME / "settings"
        settings.mkdir(mode=0o755)
        # The box's PIDs are not the first: the one thing that is not as on a node.
        text = '[daemon]\npoll_interval = "200ms"\nforeign_pids = true\n'
        (settings / "gpukilld.toml").write_text(text + (RECIPES / "container/gpukilld.toml").read_text())
        # Whom it names is warned, and not ended while the script runs.
        (settings / "guard.toml").write_text(
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
image = ("--rootfs", "/:O")
run(
    *PODMAN, "run", "--detach", "--name=train", "--network=none", "--privileged", "--pids-limit=-1",
    "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--volume=/srv/gpukill:/srv/gpukill:ro",
    "--volume=/run/gpukill:/run/gpukill", *image, *WORKER.split(), "root",
)  # fmt: skip
stage.workers(3)
names = eventually("everybody has a name", lambda: (lambda named: named if None not in named else None)(
    [row.get("user") for row in stage.rows().values()]))  # fmt: skip
says("people have names", sorted(names)[:2] == ["alice", "bob"] or {"alice", "bob"} < set(names), names)
print(stage.ctl("alice", "list", "--details").stdout)
rows = stage.rows()
pids = {row["user"]: pid for pid, row in rows.items()}
contained = next(row for row in rows.values() if row.get("container"))
says("a container has a name", contained["container_name"] == "train", contained)

refused = stage.ctl("alice", "kill", str(pids["bob"]))
says("alice may not end bob's", refused.returncode == 4, refused)
run("usermod", "-aG", "gpukill-operators", "alice")
inside = run(*PODMAN, "exec", "train", "/srv/gpukill/target/debug/gpukillctl", "kill", str(pids["bob"]), "--dry-run", check=False)
says("root of another container may only look", inside.returncode == 4, inside)
eventually("bob is warned on his terminal", lambda: "gpukill" in Path("/tmp/bob.said").read_text(errors="replace"), patience=60)
said = Path("/tmp/bob.said").read_text(errors="replace")
says("bob is warned on his terminal, by the box's clock", True)
print(said)
reset = stage.ctl("root", "reset", "--gpu", "0", "--force", "--yes")
says("a reset is not supported", reset.returncode == 5, reset)
edit = stage.ctl("root", "guard", "user", "set", "alice", "--memory-limit", "40")
says("rules are not edited", edit.returncode == 1, edit)
print(edit.stderr)


def is_operator():
    return "may end anybody's processes" in stage.ctl("alice", "status").stdout


eventually("alice is an operator, who was not at the start", is_operator, patience=45)
stage.kill("bob's, by an operator", pids["bob"], {pids["bob"]}, scope="process")
stage.kill("a container, by root", contained["pid"], {contained["pid"]}, "--force", user="root", scope="container")
print(stage.ctl("root", "status").stdout)
probe = run(*PODMAN, "exec", "gpukilld", "/usr/bin/gpukillctl", "status", check=False)
says("the probe is well", probe.returncode == 0, probe)
run(*PODMAN, "stop", "--time=15", "gpukilld")
state = json.loads(run(*PODMAN, "inspect", "gpukilld").stdout)[0]["State"]
says("it ends when it is told to", state["ExitCode"] == 0, state)
print(run(*PODMAN, "logs", "gpukilld", check=False).stderr)
