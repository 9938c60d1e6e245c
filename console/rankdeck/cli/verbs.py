"""The commands and their options as one table; importing this module is cheap."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rankdeck_agent.wire.leftovers import KEEP_DAYS


class Verb(NamedTuple):
    """One command: its help sentence, the function `module:name` that does it, its arguments."""

    name: str
    help: str
    target: str
    arguments: Mapping[str, Mapping[str, Any]]


def _option(text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - argparse's own keywords
    return {"help": text, **more}


def _flag(text: str) -> dict[str, Any]:
    return {"help": text, "action": "store_true"}


def _text(text: str, metavar: str) -> dict[str, Any]:
    """A text; "" if it is not given."""
    return {"help": text, "metavar": metavar, "default": ""}


def _number(text: str, metavar: str, default: float) -> dict[str, Any]:
    """A number of the same type as its default."""
    return {"help": text, "metavar": metavar, "type": type(default), "default": default}


def _several(text: str, metavar: str) -> dict[str, Any]:
    """Texts, for an option that may be repeated."""
    return {"help": text, "metavar": metavar, "action": "append", "default": []}


_JOB = _option("job id, name, or the beginning of one", metavar="JOB")
_RANKS = _text("only these ranks, e.g. 0-3,7 or node=n[01-02] or state=failed", "RANKS")
_WAIT = {
    **_number(
        "wait so long until all nodes are heard (default: 10, or until they fail)", "SECONDS", 0.0
    ),
    "default": None,
}
_WATCH = _number("watch at least this long before judging (default: two samples)", "SECONDS", 0.0)
_ON = _text("nodes to use, e.g. n[01-04], or 'all!n3' to leave out n3", "NODESET")
_SET = _several(
    "change a value of the job file, e.g. env.OMP_NUM_THREADS=4; may be repeated", "KEY=VALUE"
)
_FOR = {
    "--for": _option("for how long, e.g. 30m, 4h, 2d (default 4h)", metavar="SPAN", dest="limit", default="4h"),
    "--why": _text("the reason, for other users", "TEXT"),
    "--off": _flag("end it now"),
}  # fmt: skip
_NODESET = _option("e.g. n[01-04], all, 'n*', 'all!n3'", metavar="NODESET")
_SLURM_JOBS = _option("jobs, by their names here or in Slurm", metavar="JOB", nargs="+")
_SERVICE = {"--dry-run": _flag("print the exact command, do nothing"), "--yes": _flag("do not ask")}

VERBS = (
    Verb(
        "check",
        "list every mistake in cluster and job files",
        "rankdeck.cli.check:run_check",
        {
            "files": _option("cluster or job files, by path or name", metavar="FILE", nargs="+"),
            "--live": _flag(
                "also ask the Kubernetes cluster: kubectl, server, kinds of jobs, rights"
            ),
        },
    ),
    Verb(
        "trust",
        "agree to the programs and files that cluster and job files use on this machine",
        "rankdeck.cli.check:run_trust",
        {"files": _option("cluster or job files, by path or name", metavar="FILE", nargs="+")},
    ),
    Verb(
        "status",
        "show the health of every node",
        "rankdeck.cli.status:run_status",
        {"--wait": _WAIT, "--watch": _WATCH},
    ),
    Verb(
        "health",
        "check nodes, with the output and exit codes of a Nagios plug-in",
        "rankdeck.cli.health:run_health",
        {"nodes": {**_NODESET, "nargs": "?", "default": ""}, "--wait": _WAIT, "--watch": _WATCH},
    ),
    Verb(
        "ack",
        "acknowledge a finding: still listed, no longer counted, until it gets worse or the time is over",
        "rankdeck.cli.health:run_ack",
        {
            "nodes": _NODESET,
            "check": _option("as `health` names it, e.g. disk.full", metavar="CHECK"),
            "--device": _text("only this device", "DEVICE"),
            **_FOR,
        },
    ),
    Verb(
        "silence",
        "silence all findings of nodes for a while: maintenance",
        "rankdeck.cli.health:run_silence",
        {"nodes": _NODESET, **_FOR},
    ),
    Verb(
        "drain",
        "drain Slurm nodes: shows the exact command, asks, runs it",
        "rankdeck.schedulers.slurm.commands:run_drain",
        {
            "nodes": _NODESET,
            "--why": _text("the reason for Slurm; `rankdeck:` is put before it", "TEXT"),
            **_SERVICE,
        },
    ),
    Verb(
        "resume",
        "resume Slurm nodes that were drained from here",
        "rankdeck.schedulers.slurm.commands:run_resume",
        {
            "nodes": _NODESET,
            "--anyway": _flag("also those that somebody else, or Slurm, drained"),
            **_SERVICE,
        },
    ),
    Verb(
        "hold",
        "hold jobs of Slurm: shows the exact command, asks, runs it",
        "rankdeck.schedulers.slurm.commands:run_hold",
        {"jobs": _SLURM_JOBS, **_SERVICE},
    ),
    Verb(
        "release",
        "release jobs of Slurm that are held",
        "rankdeck.schedulers.slurm.commands:run_release",
        {"jobs": _SLURM_JOBS, **_SERVICE},
    ),
    Verb(
        "requeue",
        "stop jobs of Slurm and put them back into its queue",
        "rankdeck.schedulers.slurm.commands:run_requeue",
        {"jobs": _SLURM_JOBS, **_SERVICE},
    ),
    Verb(
        "timelimit",
        "give jobs of Slurm another time limit",
        "rankdeck.schedulers.slurm.commands:run_timelimit",
        {
            "to": _option("as Slurm writes it: 02:00:00, 90, +30", metavar="TIME"),
            "jobs": _SLURM_JOBS,
            **_SERVICE,
        },
    ),
    Verb(
        "slurm",
        "print what Slurm says of jobs, priorities, shares and its controller, and how well jobs used what they had",
        "rankdeck.schedulers.slurm.commands:run_slurm",
        {
            "what": _option(
                "job, priority, efficiency, shares (fairshare) or controller (sdiag)",
                metavar="QUESTION",
                choices=("job", "priority", "efficiency", "shares", "controller"),
            ),
            "jobs": {**_SLURM_JOBS, "nargs": "*"},
        },
    ),
    Verb(
        "expect",
        "write the `expect` block of the cluster file from what the nodes have",
        "rankdeck.cli.health:run_expect",
        {
            "--write": _option(
                "write it into the cluster file, or into FILE", metavar="FILE", nargs="?", const=""
            ),
            "--wait": _WAIT,
        },
    ),
    Verb(
        "nodes",
        "list the nodes of the cluster file; asks none of them",
        "rankdeck.cli.nodes:run_nodes",
        {
            "--live": _flag("also ask the nodes for their hardware and software"),
            "--import": {
                **_text(
                    "print a cluster file made from another list: MPI hostfile, Ansible inventory, /etc/hosts,"
                    " groups of ClusterShell, genders, output of sinfo or `kubectl get nodes`; - is stdin",
                    "FILE",
                ),
                "dest": "imported",
            },
            "--format": _text("what that list is, if it is not seen from its text", "FORMAT"),
            "--wait": _WAIT,
        },
    ),
    Verb(
        "sh",
        "run a shell command on nodes; equal output is printed once, with its nodes",
        "rankdeck.cli.sh:run_sh",
        {
            "nodes": _NODESET,
            "words": _option(
                "the command, after --; several words are joined, as ssh does",
                metavar="COMMAND",
                nargs="+",
            ),
            "--limit": _number("time limit on each node (default 300)", "SECONDS", 300.0),
            "--fan-out": _number("how many nodes at a time (default 64)", "N", 64),
            "--lines": _flag("print each line as it comes, after the name of its node"),
        },
    ),
    Verb(
        "ps",
        "list processes on nodes: user, CPU, memory, GPU, job and rank",
        "rankdeck.cli.ps:run_ps",
        {
            "nodes": {**_NODESET, "nargs": "?", "default": ""},
            "--job": _text("what each rank of this job uses", "JOB"),
            "--all": _flag("also idle processes"),
        },
    ),
    Verb(
        "cp",
        "copy a file to nodes, or a file of each node into a folder here, as NAME.NODE",
        "rankdeck.cli.cp:run_cp",
        {
            "file": _option("a file here, or NODESET:FILE", metavar="FILE"),
            "to": _option(
                "nodes, and the path there (default: its name, in the home folder); or a folder here",
                metavar="NODESET[:PATH]|FOLDER",
            ),
            "--replace": _flag("replace another file of that name"),
        },
    ),
    Verb(
        "run",
        "start a job and print the output of its ranks",
        "rankdeck.cli.run:run_job",
        {
            "file": _option("a job file, or the name of one", metavar="JOB"),
            "--dry-run": _flag("print the exact files and commands, do nothing"),
            "--server": _flag("with --dry-run: also have Kubernetes check the job"),
            "--detach": _flag("return once it has started"),
            "--export": _text(
                "write the job as a shell script that needs no Rankdeck; - is stdout", "FILE"
            ),
            "--no-preflight": _flag("start it without checking first"),
            "--yes": _flag("apply and follow a manifest of Kubernetes without asking"),
            "--on": _ON,
            "--set": _SET,
        },
    ),
    Verb(
        "export-script",
        "write a job as a shell script that needs no Rankdeck",
        "rankdeck.cli.run:export_script",
        {
            "file": _option("a job file, or the name of one", metavar="JOB"),
            "--output": _text("the script (default: stdout)", "FILE"),
            "--on": _ON,
            "--set": _SET,
        },
    ),
    Verb(
        "preflight",
        "check what would go wrong with a job before it starts",
        "rankdeck.cli.preflight:run_preflight",
        {
            "file": _option("a job file, or the name of one", metavar="JOB"),
            "--on": _ON,
            "--set": _SET,
            "--fix": _flag("print the job file with all proposed changes"),
        },
    ),
    Verb(
        "doctor",
        "check what this machine and the nodes lack, and how to fix it",
        "rankdeck.cli.preflight:run_doctor",
        {},
    ),
    Verb(
        "accept",
        "test whether the cluster is good, and if not, which node or link is bad; or read an output with --read",
        "rankdeck.acceptance.command:run_accept",
        {
            "words": _option(
                "nodes (default: all), or what --read or --baseline takes",
                metavar="WORD",
                nargs="*",
            ),
            "--dry-run": _flag(
                "show what would be done: nodes are asked what they have, nothing is measured"
            ),
            "--from": _option(
                "begin with this stage: single, pairs, leaf, groups",
                metavar="STAGE",
                dest="begin",
                default="",
            ),
            "--only": _text("only these stages, or only these nodes", "STAGE,…|NODESET"),
            "--recipe": _several(
                "what to run, instead of what the nodes have; may be repeated", "NAME"
            ),
            "--include-busy": _text("measure these nodes although they are busy or bad", "NODESET"),
            "--exhaustive": _flag("every pair, however many nodes there are"),
            "--rails": _text(
                "RDMA devices or interfaces, each measured by itself (default: all RDMA devices of the fastest rate)",
                "DEVICE,…",
            ),
            "--max-crossing": _option(
                "at most this percentage of pairs crosses leaf switches at once, to spare other users of the fabric",
                metavar="PERCENT",
                default="100",
            ),
            "--repeats": _number("measurements of each direction (default 2)", "N", 2),
            "--seconds": _number(
                "length of each bandwidth measurement in seconds (default: the recipe's)", "N", 0
            ),
            "--soak": _text("repeat the largest group for this long, e.g. 30m", "SPAN"),
            "--like": _text("use the container, environment and MPI of this job file", "JOB"),
            "--resume": _text("continue a run that was stopped", "RUN"),
            "--list": _flag("list the kept runs"),
            "--show": _text("show a kept run; nothing is measured", "RUN"),
            "--report": _text(
                "write page, JSON, JUnit, Prometheus, node lists and matrix into this folder; with --show those of a kept run",
                "DIR",
            ),
            "--baseline": _text(
                "`this`: make this run the baseline if it is accepted; or show, declare RUN, export, import FILE",
                "WHAT",
            ),
            "--exclude": _text("keep jobs away from these nodes", "NODESET"),
            "--readmit": _text("let jobs run on these nodes again", "NODESET"),
            "--why": _text("reason of --exclude", "TEXT"),
            "--for": _option(
                "how long --exclude holds (default 7d)", metavar="SPAN", dest="limit", default="7d"
            ),
            "--yes": _flag("do not ask before it starts"),
            "--read": _text(
                "the program that wrote the outputs: nccl-tests, ib_write_bw, iperf3, imb, himeno, …",
                "RECIPE",
            ),
        },
    ),
    Verb(
        "scale",
        "run a job with more and more ranks, or other values, and say how it scales and where more stops to pay",
        "rankdeck.scaling.command:run_scale",
        {
            "file": _option("job file, or its name", metavar="JOB", nargs="?", default=""),
            "--ranks": _text("numbers of ranks, e.g. 1,2,4,8", "N,…"),
            "--nodes": _text("numbers of nodes instead, each with the job's ranks per node", "N,…"),
            "--set": _several(
                "values of the job file to compare, e.g. env.OMP_NUM_THREADS=1,2; may be repeated",
                "KEY=VALUE,…",
            ),
            "--weak": _several(
                "a value that grows with the ranks: one for each number of ranks, or {ranks} or {24*ranks} in it",
                "KEY=VALUE,…",
            ),
            "--repeat": _number("runs of each point (default 3)", "N", 3),
            "--number": _text(
                "what to compare: a number that the job prints, `wall`, or a recipe such as himeno that reads its output (default: the first speed that it prints, else wall)",
                "NAME",
            ),
            "--on": _ON,
            "--limit": _option(
                "cancel a run after this long (default 30m)", metavar="SPAN", default="30m"
            ),
            "--dry-run": _flag("show the points, start nothing"),
            "--no-preflight": _flag("start without asking the nodes first"),
            "--yes": _flag("do not ask before it starts"),
            "--resume": _text("continue a study that was stopped", "STUDY"),
            "--list": _flag("list the kept studies"),
            "--show": _text("show a kept study; nothing is run", "STUDY"),
            "--report": _text("write page, JSON and CSV into this folder", "DIR"),
        },
    ),
    Verb(
        "drill",
        "plant harmless faults in jobs of its own and say who was named, how soon, and whether that was right",
        "rankdeck.drill.command:run_drill",
        {
            "--only": _text(
                "these faults: killed, stopped, silent, slow, collective, frozen, cut (default: all)",
                "FAULT,…",
            ),
            "--launch": _text(
                "with these launchers: plain, mpi, torchrun (default: all)", "NAME,…"
            ),
            "--on": _ON,
            "--nodes": _number("nodes of each job (default: 3, or as many as there are)", "N", 0),
            "--ranks-per-node": _number("ranks on each node (default 2)", "N", 0),
            "--like": _text(
                "take environment, image and options of launcher and scheduler from this job file",
                "JOB",
            ),
            "--limit": _option(
                "wait so long for an answer to each fault (default 2m)",
                metavar="SPAN",
                default="2m",
            ),
            "--cut": _text(
                "the program of the site, here, that cuts the link of {node}", "COMMAND"
            ),
            "--mend": _text("the one that mends it", "COMMAND"),
            "--dry-run": _flag("show what would be planted, start nothing"),
            "--yes": _flag("do not ask before it starts"),
        },
    ),
    Verb(
        "swap",
        "run a failed or stalled job again, briefly, with its ranks on other nodes, and say whether the fault stays with the program or goes with a node",
        "rankdeck.swap.command:run_swap",
        {
            "job": _JOB,
            "--limit": _option(
                "stop a run after this long (default 10m; twice the time until the fault, if that is less)",
                metavar="SPAN",
                default="10m",
            ),
            "--dry-run": _flag("show the runs, start nothing"),
            "--yes": _flag("do not ask before it starts; a job that still runs is cancelled first"),
        },
    ),
    Verb(
        "images",
        "list which node has which container image; `images push FILE NODESET` copies one",
        "rankdeck.cli.images:run_images",
        {
            "words": _option(
                "nodes to ask (default: all); or push FILE NODESET", metavar="WORD", nargs="*"
            ),
            "--image": _text("this image instead of those of the job files", "PATH"),
            "--to": _text("path on the nodes (default: its name, in the home folder)", "PATH"),
            "--replace": _flag("replace another image of that name"),
            "--runtime": _text(
                "container runtime; with podman or docker, push loads an archive into their store",
                "NAME",
            ),
        },
    ),
    Verb(
        "jobs",
        "list jobs, newest first",
        "rankdeck.cli.jobs:run_jobs",
        {
            "--all": _flag("also those that ended more than a day ago"),
            "--parts": _flag(
                "also the jobs of acceptance runs, scaling studies, drills and swap proofs"
            ),
            "--from-nodes": _flag(
                "also ended jobs that only their nodes know: read them back into the history"
            ),
            "--live": _flag("with --json: also what each rank of a running job uses now"),
            "--all-namespaces": _flag("Kubernetes: jobs of others in all namespaces"),
            "--where": _text(
                "only jobs that match this filter, as after `/` on Jobs: 'user=ann & reason=Priority'",
                "FILTER",
            ),
            "--ended": _flag(
                "Slurm: also jobs of all users that ended within a day, from its accounting"
            ),
        },
    ),
    Verb(
        "logs",
        "print the output of the ranks of a job",
        "rankdeck.cli.logs:run_logs",
        {
            "job": _JOB,
            "--rank": _RANKS,
            "--follow": _flag("keep printing until the job ends"),
            "--launcher": _flag("the output of mpirun, torchrun or Slurm instead of the ranks"),
            "--stream": _option("only this stream", choices=("out", "err"), default=""),
            "--attempt": _option(
                "Slurm: only this run of a job that was requeued, from 0", metavar="N", type=int
            ),
            "--collapse": _flag(
                "print equal lines once, with the ranks that wrote them and those that did not"
            ),
            "--merge": _flag("sort by time; print once what several ranks wrote together"),
            "--diff": _option(
                "where two ranks differ; without RANKS: where ranks differ from the majority",
                metavar="RANKS",
                nargs="?",
                const="",
            ),
        },
    ),
    Verb(
        "cancel",
        "end every process of jobs, and verify that nothing is left",
        "rankdeck.cli.jobs:run_cancel",
        {
            "job": {**_JOB, "nargs": "*"},
            "--all": _flag("all your jobs that run on this cluster; asks first"),
            "--grace": _option(
                "seconds from TERM to KILL (default: the job's)", metavar="SECONDS", type=float
            ),
            "--task": _option(
                "Slurm: only these tasks of an array, such as 3,5-7", metavar="TASKS"
            ),
            "--yes": _flag("do not ask: also a job that somebody else started, or all"),
        },
    ),
    Verb(
        "clean",
        "remove what ended jobs and older consoles left on nodes and here: says what and how much, asks, removes it",
        "rankdeck.cli.clean:run_clean",
        {
            "--dry-run": _flag("only say what would go"),
            "--days": _number(
                "keep what was used within so many days (default 30)", "N", KEEP_DAYS
            ),
            "--size": _text(
                "also remove the oldest run folders of ended jobs beyond this size on each node, e.g. 10G",
                "SIZE",
            ),
            "--nodes": _text("only on these nodes, and here", "NODESET"),
            "--yes": _flag("do not ask"),
        },
    ),
    Verb(
        "inspect",
        "show where every rank of a job is now, and which ranks are elsewhere",
        "rankdeck.cli.jobs:run_inspect",
        {"job": _JOB},
    ),
    Verb(
        "report",
        "write everything about a job to one archive, to attach to a ticket; or to one HTML page",
        "rankdeck.cli.jobs:run_report",
        {
            "job": _JOB,
            "--html": _option(
                "one page for a browser instead (default JOB.html here)",
                metavar="FILE",
                nargs="?",
                const="",
            ),
            "--output": _text("the archive (default JOB.tar.gz here)", "FILE"),
            "--full": _flag("whole logs instead of the last megabyte of each"),
        },
    ),
    Verb(
        "replay",
        "replay a job as it happened",
        "rankdeck.cli.run:run_replay",
        {
            "job": _JOB,
            "--speed": _number("how many times as fast (default 10)", "N", 10.0),
        },
    ),
    Verb(
        "attach",
        "open the console, on JOB if one is named; without a terminal: print its output until it ends",
        "rankdeck.cli.run:run_attach",
        {"job": {**_JOB, "nargs": "?", "default": ""}},
    ),
    Verb(
        "export",
        "serve the metrics of all nodes to Prometheus, until Ctrl-C",
        "rankdeck.cli.export:run_export",
        {
            "--listen": _option(
                "address and port (default 127.0.0.1:9464)",
                metavar="HOST:PORT",
                default="127.0.0.1:9464",
            ),
            "--simulated": _flag('also simulated metrics, labelled simulated="1"'),
        },
    ),
    Verb(
        "completion",
        'print shell completion: `eval "$(rankdeck completion bash)"`',
        "rankdeck.cli.completion:run_completion",
        {"shell": _option("bash, zsh or fish", choices=("bash", "zsh", "fish"))},
    ),
    Verb(
        "demo",
        "start a cluster of three virtual nodes here and open the console on it; with --nodes: a simulated fleet",
        "rankdeck.cli.demo:run_demo",
        {
            "action": _option(
                "start it, stop it, or show its state, without the console",
                nargs="?",
                choices=("up", "down", "status"),
            ),
            "--fault": _several(
                "simulate a fault on a node, e.g. gpu:hot@sakura, rdma:flap; may be repeated",
                "WHAT:FAULT[@NODE]",
            ),
            "--nodes": _number(
                "open the console on N simulated nodes instead: nothing runs there, faults come and go",
                "N",
                0,
            ),
        },
    ),
)
AGENT_MORE = """Anything else is the agent itself, on this machine: `rankdeck agent sample` is
`rankdeck-agent sample`; `rankdeck-agent --help` lists what it does."""
AGENT_HELP = "install, uninstall or check the agent as a service on nodes, have it let the GPUs go; other words run the agent here"
_NODES = _option("e.g. n[01-04]; without it all nodes", metavar="NODESET", nargs="?", default="")
_SYSTEM = _flag("a service of the system (the default); needs root or sudo")
_USER = {**_flag("a service of the login user"), "action": "store_false"}
_SCOPE = {"--system": {**_SYSTEM, "default": True}, "--user": {**_USER, "dest": "system"}}
_DRY = {"--dry-run": _flag("print the exact files and commands, do nothing")}
AGENT_VERBS = (
    Verb(
        "install",
        "install the agent on nodes as a systemd service, or as a DaemonSet; it publishes to the site's broker",
        "rankdeck.cli.agent:run_install",
        {
            "nodes": _NODES,
            **_SCOPE,
            **_DRY,
            "--kubernetes": _flag(
                "print a DaemonSet instead, for all nodes of a Kubernetes cluster"
            ),
            "--image": _text("container image with Python 3.6 or newer", "IMAGE"),
            "--apply": _flag("create the DaemonSet (kubectl apply)"),
        },
    ),
    Verb(
        "uninstall",
        "stop the service and remove all of it",
        "rankdeck.cli.agent:run_uninstall",
        {"nodes": _NODES, **_SCOPE, **_DRY},
    ),
    Verb(
        "stop",
        "with --gpu: have the agents let the GPU driver go, e.g. to reset a GPU; GPUs are unknown meanwhile",
        "rankdeck.cli.agent:stop_gpu",
        {
            "--gpu": {**_flag("the reading of GPUs; all else goes on"), "required": True},
            "nodes": _NODES,
            **_SCOPE,
        },
    ),
    Verb(
        "start",
        "with --gpu: have the agents read the GPUs again",
        "rankdeck.cli.agent:start_gpu",
        {"--gpu": {**_flag("the reading of GPUs"), "required": True}, "nodes": _NODES, **_SCOPE},
    ),
    Verb(
        "digest",
        "print the SHA-256 of the agent file that is copied to nodes, like sha256sum",
        "rankdeck.cli.agent:run_digest",
        {},
    ),
    Verb(
        "status",
        "show whether the service runs, its version, and when it was last heard",
        "rankdeck.cli.agent:run_agent_status",
        {"nodes": _NODES, **_SCOPE},
    ),
)
