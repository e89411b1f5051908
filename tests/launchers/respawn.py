"""Launchers that start again what was ended: torchrun, a service with Restart=, of
the system and of a person. Needs torchrun and sshd."""

from stage import WORKER, Login, Stage, called, crowd, needs, run

needs("torchrun", "sshd")
stage = Stage()
alice = Login()
words = "--redirects 1 --tee 1 --max_restarts 3 --monitor_interval 1"
alice.says(f"torchrun {words} --nproc_per_node=2 {WORKER.split()[1]}")
workers = stage.workers(2)
stage.kill("one worker of torchrun", workers[0], workers[:1], scope="process")
again = stage.workers(2)
while set(again) & set(workers):
    again = stage.workers(2)
stage.kill("torchrun after a restart", again[0], called(crowd(), "torchrun", "worker.py"))
stage.workers(0)

run("systemd-run", "--unit=serve", "--uid=alice", "--property=Restart=always", *WORKER.split(), "serve")
pids = stage.workers(1)
stage.kill("a service of the system", pids[0], pids)
stage.workers(1)
run("systemctl", "stop", "serve")
stage.workers(0)

alice.says(f"systemd-run --user --unit=mine sh -c '{WORKER} mine; true'")
pids = stage.workers(1)
stage.kill("a service of a person's own systemd", pids[0], called(crowd(), "mine"))
stage.workers(0)
alice.says(f"systemd-run --user --scope --unit=alone {WORKER} alone &")
pids = stage.workers(1)
stage.kill("a scope of a person's own systemd", pids[0], pids)
stage.workers(0)
