"""mpirun with four ranks in a login shell, piped into tee; and one that its ranks
end with themselves. Needs openmpi-bin and sshd."""

from stage import WORKER, Login, Stage, called, crowd, needs

needs("mpirun", "sshd")
stage = Stage()
alice = Login()
alice.says(f"mpirun --oversubscribe -n 4 {WORKER} | tee log")
ranks = stage.workers(4)
stage.kill("mpirun | tee", ranks[2], called(crowd(), "mpirun", "worker.py", "tee"))
stage.workers(0)

alice.says(f"mpirun --oversubscribe -n 4 {WORKER}")
ranks = stage.workers(4)
# One rank alone: mpirun ends the others, and itself.
stage.kill("one rank of mpirun", ranks[0], ranks[:1], scope="process")
stage.workers(0)
