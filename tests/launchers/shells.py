"""What people start by hand: below nohup in an interactive shell, by ssh without a
terminal, in tmux and screen, by cron; two runs of one person in one session. Needs
sshd, tmux, screen and cron."""

import os
import subprocess
from pathlib import Path

from stage import WORKER, Login, Stage, called, crowd, needs, run

needs("sshd", "tmux", "screen", "cron")
stage = Stage()
alice = Login()


def only(what):
    """All that is alice's and was started for this."""
    return called(crowd(), what) - called(crowd(), "ssh ")


alice.says(f"nohup {WORKER} first >/dev/null 2>&1 &")
stage.workers(1)
alice.says(f"{WORKER} second | cat >/dev/null &")
stage.workers(2)
first, second = only("first"), only("second")
pipe = called(crowd(), "cat")
stage.kill("the second of two runs in one shell", *second, second | pipe)
stage.workers(1)
stage.kill("nohup in a shell", *first, first)
stage.workers(0)

# A script starts it, and goes on with the next.
alice.says(f"bash -c 'for run in 1 2; do {WORKER} sweep; done' &")
stage.workers(1)
worker = called(crowd(), "sweep") - called(crowd(), "bash")
stage.kill("one run of a shell's loop", *worker, worker)
stage.workers(1)
worker = called(crowd(), "sweep") - called(crowd(), "bash")
stage.kill("the loop's second run", *worker, worker)
stage.workers(0)

subprocess.run([*(w for w in alice.words if w != "-tt"), f"nohup {WORKER} remote >/dev/null 2>&1 </dev/null &"], check=True)
pids = stage.workers(1)
stage.kill("ssh without a terminal, gone", pids[0], pids)
stage.workers(0)

held = subprocess.Popen([*(w for w in alice.words if w != "-tt"), f"{WORKER} held; true"], stdin=subprocess.DEVNULL)
pids = stage.workers(1)
stage.kill("ssh without a terminal, held", pids[0], pids)
stage.workers(0)

alice.says(f"tmux new-session -d '{WORKER} tmux-1; sleep 1000'")
alice.says("tmux split-window -d")
alice.says(f"tmux send-keys -t :.1 '{WORKER} tmux-2' Enter")
stage.workers(2)
inside = called(crowd(), "tmux-2") - called(crowd(), "tmux")
inside = {pid for pid, it in crowd().items() if it["command"].endswith("worker.py tmux-2 ")}
direct = {pid for pid, it in crowd().items() if it["command"].endswith("worker.py tmux-1 ")}
stage.kill("in a pane's shell", *inside, inside)
stage.kill("the command of a pane", *direct, direct)
stage.workers(0)

alice.says(f"screen -dmS run {WORKER} screen-1")
pids = stage.workers(1)
stage.kill("in screen", pids[0], pids)
stage.workers(0)

Path("/etc/cron.d/run").write_text(f"* * * * * alice {WORKER} cron-1 >/dev/null 2>&1\n")
os.chmod("/etc/cron.d/run", 0o644)
run("systemctl", "start", "cron")
pids = stage.workers(1, patience=70)
Path("/etc/cron.d/run").unlink()
stage.kill("by cron", pids[0], pids)
stage.workers(0)
