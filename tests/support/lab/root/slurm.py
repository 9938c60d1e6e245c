"""Slurm on the nodes of a root lab: munge everywhere, slurmctld on n3, slurmd on n1 and n2."""

from pathlib import Path

import yaml

from tests.support.lab.root.people import Operator, eventually

WORKERS = ("n1", "n2")
CONTROLLER = "n3"
CONFIG = """\
ClusterName=lab
SlurmctldHost=n3
AuthType=auth/munge
CredType=cred/munge
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmdParameters=config_overrides
KillWait=5
SchedulerParameters=sched_interval=1,sched_min_interval=0
NodeName=n[1-2] CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_PREPARE = """\
mkdir -p /etc/slurm /run/munge /var/log/munge /var/lib/munge /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
printf '%s' "$CONFIG" >/etc/slurm/slurm.conf; echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf
printf %01024d 7 >/etc/munge/munge.key
chown munge:munge /etc/munge/munge.key /run/munge /var/log/munge /var/lib/munge; chmod 400 /etc/munge/munge.key
chown slurm:slurm /var/lib/slurm/slurmctld; chmod 755 /run/munge
runuser -u munge -- /usr/sbin/munged
"""
_SHARE = """\
mkdir -p SHARED/state /home/lab/.local/state && chown -R lab SHARED/state /home/lab/.local
mount --bind SHARED/state /home/lab/.local/state
"""
"""Jobs are kept where all nodes see them, as on clusters with shared homes."""


def start(root: Operator) -> None:
    """Slurm is up and its workers idle when this returns; stays up as long as the lab."""
    for node in (*WORKERS, CONTROLLER):
        daemon = "slurmctld" if node == CONTROLLER else "slurmd"
        root.on(node, f"CONFIG='{CONFIG}'; {_PREPARE} {daemon}")
        root.on(node, _SHARE.replace("SHARED", str(root.lab.shared)))
    idle = lambda: root.on(CONTROLLER, "sinfo -h -o '%D %t'") == "2 idle\n"  # noqa: E731
    assert eventually(idle), root.on(CONTROLLER, "sinfo; tail /var/log/slurmctld.log")


def through(who: Operator) -> Operator:
    """The same operator, whose cluster file says that Slurm runs the jobs and n3 is its login node."""
    file = Path(who.file)
    cluster = yaml.safe_load(file.read_text())
    cluster |= {
        "backend": "slurm",
        "slurm": {"login": CONTROLLER, "partition": "debug"},
    }
    file.write_text(yaml.safe_dump(cluster))
    return who
