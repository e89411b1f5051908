"""A Slurm of one node: a batch job with a step, and srun from a login shell. Needs
slurmctld, slurmd, munge and sshd."""

import os
import sys
from pathlib import Path

from stage import WORKER, Login, Stage, crowd, eventually, needs, run

needs("slurmctld", "slurmd", "munged", "sshd")
# With groups where the freezer can be mounted, which is so below version 1.
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
# Loopback alone is no address to Slurm.
run("ip", "address", "add", "10.99.0.1/24", "dev", "lo")
run("systemctl", "start", "munge", check=False)
for unit in ("slurmctld", "slurmd"):
    ran = run("systemctl", "start", unit, check=False)
    if ran.returncode:
        print(ran.stderr, *(p.read_text()[-2000:] for p in Path("/var/log").glob("slurm*.log")))
        print(run("systemctl", "status", "--no-pager", unit, check=False).stdout)
        sys.exit("slurm does not start")
try:
    eventually("the node", lambda: "idle" in run("sinfo", "-h", check=False).stdout, patience=15)
except SystemExit:
    print(run("sinfo", check=False), *(p.read_text()[-3000:] for p in Path("/var/log").glob("slurm*.log")))
    print(run("journalctl", "-b", "--no-pager", "-n", "40", check=False).stdout)
    raise
stage = Stage()
alice = Login()
script = Path("/home/alice/job.sh")
script.write_text(f"#!/bin/bash\nsrun --overlap -n 2 {WORKER} step\n")
script.chmod(0o755)
alice.says("sbatch --output=/dev/null -n 2 job.sh")
workers = stage.workers(2)
alice.says(f"srun -n 1 {WORKER} other")
stage.workers(3)
stage.kill("a step of a batch job", workers[0], workers)
left = stage.workers(1)
stage.kill("srun from a shell", left[0], left)
stage.workers(0)
script.write_text(f"#!/bin/bash\n{WORKER} batch\nsleep 1000\n")
alice.says("sbatch --output=/dev/null job.sh")
pids = stage.workers(1)
within = {pid for pid, it in crowd().items() if it["uid"] == 4000 and it["cgroup"] == crowd()[pids[0]]["cgroup"]}
stage.kill("a batch script", pids[0], within)
stage.workers(0)
alice.says(f"srun -n 1 bash -c '{WORKER} shell; sleep 1000'")
pids = stage.workers(1)
# A shell is a part of what it runs only where groups tell that it is a job's.
shell = {crowd()[pids[0]]["parent"]} if track == "cgroup" else set()
stage.kill("a shell that srun started", pids[0], {pids[0], *shell})
stage.workers(0)
