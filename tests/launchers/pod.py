"""gpukilld in a container with the settings of packaging/kubernetes/daemonset.yaml, next
to a container of root. Needs podman and crun, and the image as an archive:

  podman build --file packaging/container/Containerfile --tag gpukill:0.1.0 .
  podman save --output target/gpukill.tar gpukill:0.1.0
"""

import json
import os
import re
import subprocess
from pathlib import Path

from test_box import BUILT, HOME, WORKER, TestBox, eventually, process_table, require_programs, run

require_programs("podman", "crun")
ARCHIVE = Path("/srv/gpukill/target/gpukill.tar")
if not ARCHIVE.exists():
    raise SystemExit(f"skipped: there is no {ARCHIVE}")
PODMAN = ("podman",)
RECIPES = Path("/srv/gpukill/packaging")
CAPABILITIES = ("KILL", "SYS_PTRACE", "DAC_READ_SEARCH")
USER = 2100000000
# podman adds ambient and inheritable capabilities, which survive an exec; containerd does
# not. A box within a box cannot restrict devices.
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


def report(what, is_so, more=""):
    print(f"{'OK' if is_so else 'WRONG'}: {what}" + (f"\n{more}" if more and not is_so else ""))


class Pod(TestBox):
    """A host with gpukilld in a container."""

    def start(self):
        self.socket = Path("/run/gpukill/gpukilld.sock")
        # The layout of a ConfigMap by kubelet: links in a world-writable directory.
        settings = HOME / "settings"
        there = settings / "..there"
        there.mkdir(parents=True, mode=0o755)
        settings.chmod(0o777)
        (settings / "..data").symlink_to("..there")
        for name in ("gpukilld.toml", "guard.toml"):
            (settings / name).symlink_to(f"..data/{name}")
        # The box is not in the first PID namespace: the only difference from a node.
        text = '[daemon]\npoll_interval = "200ms"\nforeign_pids = true\n'
        (there / "gpukilld.toml").write_text(text + (RECIPES / "container/gpukilld.toml").read_text())
        # The rule warns bob; its grace period outlasts the script.
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
            # Limits that a box within a box cannot set.
            "--pids-limit=-1", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
            "--volume=/run/gpukill:/run/gpukill", "--volume=/var/lib/gpukill:/var/lib/gpukill",
            f"--volume={settings}:/etc/gpukill:ro",
            # NVML, where NVIDIA's container toolkit mounts it.
            f"--volume={BUILT}/libnvidia_ml_stand_in.so:/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1:ro",
            f"--volume={HOME}:{HOME}:ro", f"--env=FAKE_NVML_STATE={HOME}/state.json",
            "localhost/gpukill:0.1.0", check=False,
        )  # fmt: skip
        if ran.returncode:
            raise SystemExit(f"podman does not start a container: {ran.stderr}")

    def rows(self, user="root"):
        document = json.loads(self.ctl(user, "list", "--details", "-o", "json").stdout)
        return {row["pid"]: row for row in document["procs"]}


def start_worker(user):
    """Starts a worker of this user on a terminal that can show warnings."""
    words = ["runuser", "-u", user, "--", "script", "--quiet", "--flush", "--command", f"{WORKER} {user}", f"/tmp/{user}.out"]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


# The upper layer of an overlay cannot be on an overlay.
Path("/var/lib/containers").mkdir(exist_ok=True)
run("mount", "-t", "tmpfs", "tmpfs", "/var/lib/containers")
run("groupadd", "--system", "gpukill-operators")
run("ln", "-sf", "../usr/share/zoneinfo/Asia/Kolkata", "/etc/localtime")
test_box = Pod()
daemon = next(pid for pid, it in process_table().items() if it["name"] == "gpukilld" and "--sensor" not in it["command"])


def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


it = status_of(daemon)
report("it runs as its own user with three capabilities", (it["Uid"].split()[0], it["CapEff"], it["CapAmb"]) == (str(USER), "0000000000080024", "0" * 16), it)
report("it cannot gain privileges, and seccomp filters its system calls", (it["NoNewPrivs"], it["Seccomp"], it["CapBnd"]) == ("1", "2", "0000000000080024"), it)
sensor = [pid for pid, it in process_table().items() if it["parent"] == daemon]
report("the sensor has no capability", len(sensor) == 1 and status_of(sensor[0])["CapPrm"] == "0" * 16)

for user in ("alice", "bob"):
    start_worker(user)
test_box.workers(2)
run(
    *PODMAN, "run", "--detach", "--name=train", "--network=none", "--privileged", "--pids-limit=-1",
    "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--volume=/srv/gpukill:/srv/gpukill:ro",
    "--volume=/run/gpukill:/run/gpukill", "--rootfs", "/:O", *WORKER.split(), "root",
)  # fmt: skip
test_box.workers(3)


def by_user():
    """The row of each user, once all have names."""
    rows = {row["user"]: row for row in test_box.rows().values()}
    return rows if set(rows) == {"alice", "bob", "root"} else None


rows = eventually("users have names", by_user)
print(test_box.ctl("alice", "list", "--details").stdout)
bobs, contained = rows["bob"]["pid"], rows["root"]["pid"]
report("a container has a name", rows["root"]["container_name"] == "train", rows["root"])

refused = test_box.ctl("alice", "kill", str(bobs))
report("alice may not end a process of bob", refused.returncode == 4, refused)
client = (str(BUILT / "gpukillctl"), "kill", str(bobs), "--dry-run")
inside = run(*PODMAN, "exec", "train", *client, check=False)
report("root of another container may only read", inside.returncode == 4, inside)
reset = test_box.ctl("root", "reset", "--gpu", "0", "--force", "--yes")
report("a reset is not supported", reset.returncode == 5, reset)
edit = test_box.ctl("root", "guard", "user", "set", "alice", "--memory-limit", "40")
report("rules cannot be edited", edit.returncode == 1 and "Read-only file system" in edit.stderr, edit)


def announced_end():
    """The time of the end of bob's job in the warning on his terminal."""
    return re.search(r"at (\d\d):(\d\d)", Path("/tmp/bob.out").read_text(errors="replace"))


at = eventually("bob is warned on his terminal", announced_end, timeout=60)
# Python read the time zone of the box when it started.
now = run("date", "+%H:%M").stdout.split(":")
minutes = (int(at[1]) * 60 + int(at[2]) - int(now[0]) * 60 - int(now[1])) % (24 * 60)
report("bob is warned on his terminal, by the clock of the box", minutes <= 5, at)

run("usermod", "-aG", "gpukill-operators", "alice")
right = "may end any user's processes"
eventually("alice is an operator", lambda: right in test_box.ctl("alice", "status").stdout, timeout=45)
test_box.kill("a process of bob, by alice", bobs, {bobs}, scope="process")
test_box.kill("a container, by root", contained, {contained}, "--force", user="root", scope="container")

probe = run(*PODMAN, "exec", "gpukilld", "/usr/bin/gpukillctl", "status", check=False)
report("the probe succeeds", probe.returncode == 0 and "fault" not in probe.stdout, probe)
print(probe.stdout)
run(*PODMAN, "stop", "--time=15", "gpukilld")
state = json.loads(run(*PODMAN, "inspect", "gpukilld").stdout)[0]["State"]
report("it ends on SIGTERM", state["ExitCode"] == 0, run(*PODMAN, "logs", "gpukilld", check=False))
