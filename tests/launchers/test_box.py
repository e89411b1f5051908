"""Shared parts of the launcher scripts: gpukilld with the stand-in NVML, login shells,
and checks of which processes end and which survive."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

BUILT = Path("/srv/gpukill/target/debug")
WORKER = "/usr/bin/python3 /srv/gpukill/tests/launchers/worker.py"
GPU = Path("/run/gpu")
HOME = Path("/run/launchers")


def require_programs(*programs):
    for program in programs:
        if not shutil.which(program):
            print(f"skipped: there is no {program}")
            sys.exit(0)


def eventually(what, probe, timeout=30):
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        found = probe()
        if found:
            return found
        time.sleep(0.05)
    show(process_table())
    for log in HOME.glob("*.log"):
        print(log.read_text()[-3000:])
    raise SystemExit(f"did not happen: {what}")


def run(*words, check=True, **options):
    return subprocess.run(words, check=check, text=True, capture_output=True, **options)


def process_table():
    """All processes except kernel threads, by pid."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            stat = (directory / "stat").read_text()
            name, rest = stat[stat.index("(") + 1 :].rsplit(")", 1)
            fields = rest.split()
            groups = (directory / "cgroup").read_text().splitlines()
            found[int(directory.name)] = {
                "parent": int(fields[1]),
                "group": int(fields[2]),
                "session": int(fields[3]),
                "terminal": fields[4] != "0",
                "start": int(fields[19]),
                "zombie": fields[0] == "Z",
                "uid": directory.stat().st_uid,
                "name": name,
                "exe": os.readlink(directory / "exe") if fields[0] != "Z" else "",
                "cgroup": next((g[3:] for g in groups if g.startswith("0::")), "?"),
                "command": (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(),
            }
        except OSError:
            pass  # The process has just ended.
    return found


def show(processes):
    print("    pid   ppid   pgrp    sid   uid tty name             exe | cgroup | command")
    for pid, it in sorted(processes.items()):
        if it["cgroup"].startswith(("/init.scope", "/system.slice/systemd-", "/system.slice/dbus", "/system.slice/gpukilld", "/..")):
            continue
        tty = "tty" if it["terminal"] else "-"
        print(
            f"{pid:7}{it['parent']:7}{it['group']:7}{it['session']:7}{it['uid']:6} {tty:3} "
            f"{it['name']:16} {it['exe']} | {it['cgroup']} | {it['command'][:70]}"
        )


class TestBox:
    """A box with one GPU. Processes that run `worker.py` use it, and processes with a pid that is
    the name of a file in `GPU`."""

    def __init__(self):
        for place in (HOME, GPU):
            place.mkdir(mode=0o755)
        GPU.chmod(0o1777)
        library = HOME / "libnvidia-ml.so.1"
        library.symlink_to(BUILT / "libnvidia_ml_stand_in.so")
        self.listed = None
        self.write_driver_state()
        self.start()
        eventually("the daemon answers", lambda: self.ctl("root", "list").returncode == 0)
        threading.Thread(target=self.update_driver_state, daemon=True).start()

    def start(self):
        """Starts the daemon and sets `self.socket`."""
        self.socket = HOME / "gpukilld.sock"
        config = HOME / "gpukilld.toml"
        config.write_text(
            f'[daemon]\nsocket = "{self.socket}"\nstate_dir = "{HOME}/state"\n'
            'poll_interval = "200ms"\nforeign_pids = true\n'
            f'[backends]\nnvidia_library = "{HOME}/libnvidia-ml.so.1"\n'
        )
        environment = {"FAKE_NVML_STATE": str(HOME / "state.json"), "PATH": os.environ["PATH"]}
        # In its own unit, as on a real box, and not in the unit of this script.
        run(
            "systemd-run", "--unit=gpukilld", "--collect",
            *(f"--setenv={name}={value}" for name, value in environment.items()),
            str(BUILT / "gpukilld"), "--config", str(config),
        )  # fmt: skip

    def update_driver_state(self):
        """Removes ended processes from the driver's list."""
        while True:
            self.write_driver_state()
            time.sleep(0.05)

    def write_driver_state(self):
        listed = {int(file.name) for file in GPU.iterdir()}
        alive = sorted(
            pid
            for pid, it in process_table().items()
            if not it["zombie"]
            if pid in listed or re.match(r"\S*python\S* (-u )?\S*/worker\.py ", it["command"])
        )
        if alive == self.listed:
            return
        self.listed = alive
        gib = 1 << 30
        rows = [{"pid": pid, "memory": gib} for pid in alive]
        memory = {"total": 100 * gib, "used": len(rows) * gib}
        new = HOME / "state.new"
        new.write_text(json.dumps({"gpus": [{"memory": memory, "processes": rows}]}))
        new.rename(HOME / "state.json")

    def workers(self, count, timeout=30):
        """Waits until the daemon lists exactly `count` GPU processes. Returns their pids."""
        eventually(f"{count} workers", lambda: len(self.listed) == count, timeout)
        pids = self.listed

        def are_listed():
            ran = self.ctl("root", "list", "-o", "json")
            return all(f'"pid": {pid}' in ran.stdout or f'"pid":{pid}' in ran.stdout for pid in pids)

        eventually("the processes are listed", are_listed)
        return pids

    def ctl(self, user, *words):
        ids = run("id", "-u", user).stdout.strip()
        return run(
            "setpriv", f"--reuid={ids}", f"--regid={ids}", "--init-groups",
            "env", "HOME=/nowhere", f"GPUKILL_SOCKET={self.socket}", str(BUILT / "gpukillctl"), *words,
            check=False,
        )  # fmt: skip

    def plan(self, pid, *words, user="alice", scope="job"):
        """The pids that a dry run would end."""
        ran = self.ctl(user, "kill", str(pid), "--scope", scope, "--dry-run", "-o", "json", *words)
        if ran.returncode not in (0, 7):
            print(f"  refused: {ran.returncode} {ran.stdout}{ran.stderr}")
            return set()
        document = json.loads(ran.stdout)
        return {it["pid"] for it in document["targets"] if it.get("planned_action") == "end"}

    def kill(self, what, pid, expected, *words, user="alice", scope="job"):
        """Ends the job of a process if the plan is the expected one."""
        before = process_table()
        print(f"== {what}: {user} kills {pid} --scope {scope} {' '.join(words)}")
        table = self.ctl(user, "kill", str(pid), "--scope", scope, "--dry-run", *words)
        print(table.stdout + table.stderr)
        planned = self.plan(pid, *words, user=user, scope=scope)
        if planned != set(expected):
            print(f"WRONG PLAN: missing {set(expected) - planned}, too many {planned - set(expected)}")
            show(before)
            return False
        began = time.monotonic()
        ran = self.ctl(user, "kill", str(pid), "--scope", scope, "--yes", *words)
        took = time.monotonic() - began
        print(ran.stdout + ran.stderr)
        now = process_table()
        gone = {
            pid
            for pid, it in before.items()
            if not it["zombie"]
            if pid not in now or now[pid]["start"] != it["start"] or now[pid]["zombie"]
        }
        left = set(expected) - gone
        also = {f"{pid} {before[pid]['name']}" for pid in gone - set(expected)}
        print(f"{'OK' if not left else 'WRONG'}: exit {ran.returncode}, {took:.2f} s, not ended {left}, also ended {also}")
        return not left


def find_pids(processes, *names, uid=4000):
    """The pids of this user's processes with one of these names, or with such a word in
    the command line."""
    return {
        pid
        for pid, it in processes.items()
        if it["uid"] == uid and (it["name"] in names or any(n in it["command"] for n in names))
    }


class LoginShell:
    """A login shell of a user on a terminal, by ssh."""

    def __init__(self, user="alice"):
        require_programs("sshd", "ssh")
        keys = Path(f"/home/{user}/.ssh")
        if not keys.exists():
            run("runuser", "-u", user, "--", "mkdir", "-m", "700", str(keys))
            run("runuser", "-u", user, "--", "ssh-keygen", "-qt", "ed25519", "-N", "", "-f", f"{keys}/id_ed25519")
            run("runuser", "-u", user, "--", "cp", f"{keys}/id_ed25519.pub", f"{keys}/authorized_keys")
        run("systemctl", "start", "ssh")
        self.words = [
            "ssh", "-tt", "-i", f"{keys}/id_ed25519", "-o", "StrictHostKeyChecking=no",
            f"{user}@localhost",
        ]  # fmt: skip
        output = (HOME / f"{user}.log").open("a")
        self.ssh = subprocess.Popen(
            self.words, stdin=subprocess.PIPE, stdout=output, stderr=output, text=True
        )

    def type_line(self, line):
        self.ssh.stdin.write(line + "\n")
        self.ssh.stdin.flush()
