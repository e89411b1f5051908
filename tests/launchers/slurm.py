"""A Slurm of one node: a batch job with a step, and srun from a login shell. Needs
slurmctld, slurmd, munge and sshd."""

import os
import sys
from pathlib import Path

from test_box import WORKER, LoginShell, TestBox, eventually, process_table, require_programs, run

require_programs("slurmctld", "slurmd", "munged", "sshd")
# Tracks processes with cgroups if the freezer of version 1 can be mounted.
groups = Path("/run/cgroup/freezer")
groups.mkdir(parents=True)
mounted = run("mount", "-t", "cgroup", "-o", "freezer", "none", str(groups), check=False)
track = "linuxproc" if mounted.returncode or "linuxproc" in sys.argv else "cgroup"
host = run("hostname", "-s").stdout.strip()
Path("/etc/slurm").mkdir(exist_ok=True)
Path("/etc/slurm/cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/run/cgroup\nConstrainCores=no\nConstrainRAMSpace=no\n")
Path("/etc/slurm/slurm.conf").write_text(
    f"""ClusterName=box
SlurmctldHost={host}
ProctrackType=proctrack/{track}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdSpoolDir=/var/spool/slurmd
StateSaveLocation=/var/spool/slurmctld
SlurmUser=root
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
NodeName={host} CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
)
for place in ("slurmd", "slurmctld"):
    Path(f"/var/spool/{place}").mkdir(exist_ok=True)
with Path("/etc/hosts").open("a") as hosts:
    hosts.write(f"10.99.0.1 {host}\n")
# Slurm does not accept the loopback address alone.
run("ip", "address", "add", "10.99.0.1/24", "dev", "lo")
run("systemctl", "start", "munge", check=False)
for unit in ("slurmctld", "slurmd"):
    ran = run("systemctl", "start", unit, check=False)
    if ran.returncode:
        print(ran.stderr, *(p.read_text()[-2000:] for p in Path("/var/log").glob("slurm*.log")))
        print(run("systemctl", "status", "--no-pager", unit, check=False).stdout)
        sys.exit("slurm does not start")
try:
    eventually("the node", lambda: "idle" in run("sinfo", "-h", check=False).stdout, timeout=15)
except SystemExit:
    print(run("sinfo", check=False), *(p.read_text()[-3000:] for p in Path("/var/log").glob("slurm*.log")))
    print(run("journalctl", "-b", "--no-pager", "-n", "40", check=False).stdout)
    raise
test_box = TestBox()
alice = LoginShell()
script = Path("/home/alice/job.sh")
script.write_text(f"#!/bin/bash\nsrun --overlap -n 2 {WORKER} step\n")
script.chmod(0o755)
alice.type_line("sbatch --output=/dev/null -n 2 job.sh")
workers = test_box.workers(2)
alice.type_line(f"srun -n 1 {WORKER} other")
test_box.workers(3)
test_box.kill("a step of a batch job", workers[0], workers)
left = test_box.workers(1)
test_box.kill("srun from a shell", left[0], left)
test_box.workers(0)
script.write_text(f"#!/bin/bash\n{WORKER} batch\nsleep 1000\n")
alice.type_line("sbatch --output=/dev/null job.sh")
pids = test_box.workers(1)
within = {pid for pid, it in process_table().items() if it["uid"] == 4000 and it["cgroup"] == process_table()[pids[0]]["cgroup"]}
test_box.kill("a batch script", pids[0], within)
test_box.workers(0)
alice.type_line(f"srun -n 1 bash -c '{WORKER} shell; sleep 1000'")
pids = test_box.workers(1)
# The shell belongs to the job only if cgroups show it.
shell = {process_table()[pids[0]]["parent"]} if track == "cgroup" else set()
test_box.kill("a shell that srun started", pids[0], {pids[0], *shell})
test_box.workers(0)
