"""Processes that people start by hand: with nohup in an interactive shell, by ssh
without a terminal, in tmux and screen, with cron; two runs of one person in one
session. Needs sshd, tmux, screen and cron."""

import os
import subprocess
from pathlib import Path

from test_box import WORKER, LoginShell, TestBox, find_pids, process_table, require_programs, run

require_programs("sshd", "tmux", "screen", "cron")
test_box = TestBox()
alice = LoginShell()


def pids_with_word(what):
    """The pids of alice's processes with this word in the command line."""
    return find_pids(process_table(), what) - find_pids(process_table(), "ssh ")


alice.type_line(f"nohup {WORKER} first >/dev/null 2>&1 &")
test_box.workers(1)
alice.type_line(f"{WORKER} second | cat >/dev/null &")
test_box.workers(2)
first, second = pids_with_word("first"), pids_with_word("second")
pipe = find_pids(process_table(), "cat")
test_box.kill("the second of two runs in one shell", *second, second | pipe)
test_box.workers(1)
test_box.kill("nohup in a shell", *first, first)
test_box.workers(0)

# A script starts the first run, and then the next.
alice.type_line(f"bash -c 'for run in 1 2; do {WORKER} sweep; done' &")
test_box.workers(1)
worker = find_pids(process_table(), "sweep") - find_pids(process_table(), "bash")
test_box.kill("the first run of a shell's loop", *worker, worker)
test_box.workers(1)
worker = find_pids(process_table(), "sweep") - find_pids(process_table(), "bash")
test_box.kill("the loop's second run", *worker, worker)
test_box.workers(0)

subprocess.run([*(w for w in alice.words if w != "-tt"), f"nohup {WORKER} remote >/dev/null 2>&1 </dev/null &"], check=True)
pids = test_box.workers(1)
test_box.kill("ssh without a terminal, gone", pids[0], pids)
test_box.workers(0)

held = subprocess.Popen([*(w for w in alice.words if w != "-tt"), f"{WORKER} held; true"], stdin=subprocess.DEVNULL)
pids = test_box.workers(1)
test_box.kill("ssh without a terminal, held", pids[0], pids)
test_box.workers(0)

alice.type_line(f"tmux new-session -d '{WORKER} tmux-1; sleep 1000'")
alice.type_line("tmux split-window -d")
alice.type_line(f"tmux send-keys -t :.1 '{WORKER} tmux-2' Enter")
test_box.workers(2)
inside = find_pids(process_table(), "tmux-2") - find_pids(process_table(), "tmux")
inside = {pid for pid, it in process_table().items() if it["command"].endswith("worker.py tmux-2 ")}
direct = {pid for pid, it in process_table().items() if it["command"].endswith("worker.py tmux-1 ")}
test_box.kill("in a pane's shell", *inside, inside)
test_box.kill("the command of a pane", *direct, direct)
test_box.workers(0)

alice.type_line(f"screen -dmS run {WORKER} screen-1")
pids = test_box.workers(1)
test_box.kill("in screen", pids[0], pids)
test_box.workers(0)

Path("/etc/cron.d/run").write_text(f"* * * * * alice {WORKER} cron-1 >/dev/null 2>&1\n")
os.chmod("/etc/cron.d/run", 0o644)
run("systemctl", "start", "cron")
pids = test_box.workers(1, timeout=70)
Path("/etc/cron.d/run").unlink()
test_box.kill("started by cron", pids[0], pids)
test_box.workers(0)
