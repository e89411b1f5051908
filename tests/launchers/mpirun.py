"""mpirun with four ranks in a login shell, piped into tee; and an mpirun that ends with
one of its ranks. Needs openmpi-bin and sshd."""

from test_box import WORKER, LoginShell, TestBox, find_pids, process_table, require_programs

require_programs("mpirun", "sshd")
test_box = TestBox()
alice = LoginShell()
alice.type_line(f"mpirun --oversubscribe -n 4 {WORKER} | tee log")
ranks = test_box.workers(4)
test_box.kill("mpirun | tee", ranks[2], find_pids(process_table(), "mpirun", "worker.py", "tee"))
test_box.workers(0)

alice.type_line(f"mpirun --oversubscribe -n 4 {WORKER}")
ranks = test_box.workers(4)
# After the end of one rank mpirun ends the others and itself.
test_box.kill("one rank of mpirun", ranks[0], ranks[:1], scope="process")
test_box.workers(0)
