"""torchrun with four workers, in a login shell, beside another run of the same
person. Needs torchrun (Debian's python3-torch, or PyPI's torch) and sshd."""

from stage import WORKER, Login, Stage, called, crowd, needs

needs("torchrun", "sshd")
stage = Stage()
alice = Login()
for own_session in ("", " --own-session"):
    # Debian's does not start without these two.
    alice.says(f"torchrun --redirects 1 --tee 1 --nproc_per_node=4 {WORKER.split()[1]}{own_session}")
    workers = stage.workers(4)
    other = Login()
    other.says(f"nohup {WORKER} other >/dev/null 2>&1 &")
    stage.workers(5)
    job = called(crowd(), "torchrun", "worker.py") - called(crowd(), "other")
    stage.kill(f"torchrun{own_session}", workers[1], job)
    left = stage.workers(1)
    stage.kill("the other run", left[0], left)
    stage.workers(0)
