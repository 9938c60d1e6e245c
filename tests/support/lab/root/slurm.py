"""Slurm on the nodes of a root lab: munge everywhere, slurmctld on
n3, slurmd on n1 and n2, n4 to log in.

Accounting (MariaDB and slurmdbd on n3) is only there between `account` and `account_no_more`.
"""

from pathlib import Path

import yaml

from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

WORKERS = ("n1", "n2")
CONTROLLER = "n3"
LOGIN = "n4"
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
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
DefMemPerCPU=450
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=15
SlurmctldTimeout=8
MpiDefault=none
SlurmdParameters=config_overrides
KillWait=2
SchedulerParameters=sched_interval=1,sched_min_interval=0
GresTypes=gpu
NodeName=n[1-2] CPUs=4 RealMemory=2000 Feature=a100,ib Gres=gpu:a100:4 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=5
PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
_PREPARE = """\
mkdir -p /etc/slurm /run/munge /var/log/munge /var/lib/munge /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
printf '%s' "$CONFIG" >/etc/slurm/slurm.conf; echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf
touch /dev/gpu0 /dev/gpu1 /dev/gpu2 /dev/gpu3; echo 'Name=gpu Type=a100 File=/dev/gpu[0-3]' >/etc/slurm/gres.conf
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


_ACCOUNTING = (
    "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=n3\nMinJobAge=2\n"
)
"""The controller forgets a job after 2 s: then only accounting knows it."""
_DBD = """\
AuthType=auth/munge
DbdHost=n3
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=slurm_acct_db
StorageUser=slurm
StoragePass=x
PidFile=/run/slurm/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
"""
_DATABASE = """\
mkdir -p /run/mysqld /var/lib/mysql /run/slurm /var/log/slurm
chown slurm /run/mysqld /var/lib/mysql /run/slurm /var/log/slurm
mariadb-install-db --user=slurm --datadir=/var/lib/mysql --auth-root-authentication-method=normal --skip-test-db
(setsid mariadbd --user=slurm --datadir=/var/lib/mysql --skip-networking --socket=/run/mysqld/mysqld.sock </dev/null &) >/var/log/mariadb.log 2>&1
ask() { mariadb --socket=/run/mysqld/mysqld.sock --user=root --execute="$1"; }
for try in $(seq 100); do ask 'select 1' && break; sleep 0.2; done
ask "create database slurm_acct_db; create user slurm@localhost identified by 'x'; grant all on slurm_acct_db.* to slurm@localhost"
printf '%s' "$DBD" >/etc/slurm/slurmdbd.conf; chown slurm /etc/slurm/slurmdbd.conf; chmod 600 /etc/slurm/slurmdbd.conf
runuser -u slurm -- slurmdbd
for try in $(seq 100); do sacctmgr --noheader show cluster && break; sleep 0.2; done
"""
_LIMITED = "SlurmctldParameters=rl_enable,rl_bucket_size=30,rl_refill_rate=2\n"
"""As large sites have it since 23.02: so many calls at once, and
so many a second, for each user.
"""
_AGAIN = "pkill slurmctld; while pgrep -x slurmctld; do sleep 0.1; done; rm -f /var/lib/slurm/slurmctld/clustername; slurmctld"


def account(root: Operator) -> None:
    """Slurm remembers jobs by slurmdbd when this returns, and forgets them itself at once."""
    for node in (*WORKERS, CONTROLLER, LOGIN):
        root.on(node, f"printf '%s' '{_ACCOUNTING}' >>/etc/slurm/slurm.conf")
    said = root.on(CONTROLLER, f"DBD='{_DBD}'; {_DATABASE}", 120)
    root.on(CONTROLLER, _AGAIN)
    known = lambda: "lab" in root.on(CONTROLLER, "sacctmgr --noheader show cluster format=cluster")  # noqa: E731
    assert eventually(known), said + root.on(CONTROLLER, "tail /var/log/slurm/slurmdbd.log")
    assert eventually(lambda: idle(root)), root.on(CONTROLLER, "tail /var/log/slurmctld.log")


def account_no_more(root: Operator) -> None:
    """Slurm is as it was before `account`."""
    for node in (*WORKERS, CONTROLLER, LOGIN):
        root.on(node, "sed -i '/^AccountingStorage/d; /^MinJobAge/d' /etc/slurm/slurm.conf")
    answer = f"{root.lab.shared}/state/rankdeck/slurm/cluster.ended"  # serves consoles for a minute
    root.on(CONTROLLER, f"{_AGAIN}; pkill slurmdbd; pkill mariadbd; rm -f {answer}")
    assert eventually(lambda: idle(root)), root.on(CONTROLLER, "tail /var/log/slurmctld.log")


def limit_calls(root: Operator, *, on: bool) -> None:
    """Have the controller count the calls of each user and turn away
    those that are too many, or no more.
    """
    change = f"printf '%s' '{_LIMITED}' >>" if on else "sed -i '/^SlurmctldParameters/d' "
    root.on(CONTROLLER, f"{change}/etc/slurm/slurm.conf; {_AGAIN}")
    assert eventually(lambda: idle(root)), root.on(CONTROLLER, "tail /var/log/slurmctld.log")


def start(root: Operator) -> None:
    """Slurm is up and its workers idle when this returns; stays up as long as the lab."""
    if eventually(lambda: idle(root), 0):
        return
    for node in (*WORKERS, CONTROLLER, LOGIN):
        prepare(root, node)
    assert eventually(lambda: idle(root)), root.on(CONTROLLER, "sinfo; tail /var/log/slurmctld.log")


def prepare(root: Operator, node: str) -> None:
    """Start what belongs on this node; again after it was booted."""
    daemon = "slurmctld" if node == CONTROLLER else "slurmd" if node in WORKERS else "true"
    root.on(node, f"CONFIG='{CONFIG}'; {_PREPARE} {daemon}")
    root.on(node, _SHARE.replace("SHARED", str(root.lab.shared)))


def idle(root: Operator) -> bool:
    """Whether both workers are free."""
    return root.on(CONTROLLER, "sinfo -h -p debug -o '%D %t'") == "2 idle\n"


def through(who: Operator, calls: int = 120) -> Operator:
    """The same operator, whose cluster file says that Slurm runs the
    jobs and `login` is its login node.

    So many `calls` a minute are allowed that no test waits for the next
    one; tests of the usual limit say 6.
    """
    file = Path(who.file)
    cluster = yaml.safe_load(file.read_text())
    cluster["nodes"] = [node for node in cluster["nodes"] if node["name"] in WORKERS]
    cluster["nodes"].append({"name": "login", "address": who.lab.address(LOGIN)})
    cluster |= {"backend": "slurm"}
    cluster["slurm"] = {"login": "login", "partition": "debug", "rpcs_per_minute": calls}
    file.write_text(yaml.safe_dump(cluster))
    return who
