"""Launchers that restart ended processes: torchrun, and services with Restart= of the
system and of a user. Needs torchrun and sshd."""

from test_box import WORKER, LoginShell, TestBox, find_pids, process_table, require_programs, run

require_programs("torchrun", "sshd")
test_box = TestBox()
alice = LoginShell()
words = "--redirects 1 --tee 1 --max_restarts 3 --monitor_interval 1"
alice.type_line(f"torchrun {words} --nproc_per_node=2 {WORKER.split()[1]}")
workers = test_box.workers(2)
test_box.kill("one worker of torchrun", workers[0], workers[:1], scope="process")
again = test_box.workers(2)
while set(again) & set(workers):
    again = test_box.workers(2)
test_box.kill("torchrun after a restart", again[0], find_pids(process_table(), "torchrun", "worker.py"))
test_box.workers(0)

run("systemd-run", "--unit=serve", "--uid=alice", "--property=Restart=always", *WORKER.split(), "serve")
pids = test_box.workers(1)
test_box.kill("a service of the system", pids[0], pids)
test_box.workers(1)
run("systemctl", "stop", "serve")
test_box.workers(0)

alice.type_line(f"systemd-run --user --unit=mine sh -c '{WORKER} mine; true'")
pids = test_box.workers(1)
test_box.kill("a service of a user's systemd", pids[0], find_pids(process_table(), "mine"))
test_box.workers(0)
alice.type_line(f"systemd-run --user --scope --unit=alone {WORKER} alone &")
pids = test_box.workers(1)
test_box.kill("a scope of a user's systemd", pids[0], pids)
test_box.workers(0)
