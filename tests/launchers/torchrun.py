"""torchrun with four workers in a login shell, next to another run of the same
person. Needs torchrun (Debian's python3-torch, or PyPI's torch) and sshd."""

from test_box import WORKER, LoginShell, TestBox, find_pids, process_table, require_programs

require_programs("torchrun", "sshd")
test_box = TestBox()
alice = LoginShell()
for own_session in ("", " --own-session"):
    # Debian's torchrun does not start without --redirects and --tee.
    alice.type_line(f"torchrun --redirects 1 --tee 1 --nproc_per_node=4 {WORKER.split()[1]}{own_session}")
    workers = test_box.workers(4)
    other = LoginShell()
    other.type_line(f"nohup {WORKER} other >/dev/null 2>&1 &")
    test_box.workers(5)
    job = find_pids(process_table(), "torchrun", "worker.py") - find_pids(process_table(), "other")
    test_box.kill(f"torchrun{own_session}", workers[1], job)
    left = test_box.workers(1)
    test_box.kill("the other run", left[0], left)
    test_box.workers(0)
