"""The verbs and their options, as one table; importing this imports nothing heavy."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Verb(NamedTuple):
    """One verb: its sentence, the function `module:name` that does it, its arguments."""

    name: str
    help: str
    target: str
    arguments: Mapping[str, Mapping[str, Any]]


def _option(text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - argparse's own keywords
    return {"help": text, **more}


def _flag(text: str) -> dict[str, Any]:
    return {"help": text, "action": "store_true"}


_JOB = _option("id, name or beginning of an id", metavar="JOB")
_RANKS = _option(
    "only these ranks, e.g. 0-3,7 or node=n[01-02] or state=failed",
    metavar="RANKS",
    default="",
)
_WAIT = _option(
    "wait at most this long for the nodes (default 10)",
    metavar="SECONDS",
    type=float,
    default=10.0,
)
_WATCH = _option(
    "listen at least this long before judging (default: two samples)",
    metavar="SECONDS",
    type=float,
    default=0.0,
)
_ON = _option("nodes to use, e.g. n[01-04]", metavar="NODESET", default="")
_SET = _option(
    "change a value of the job file, e.g. env.OMP_NUM_THREADS=4; may be repeated",
    metavar="KEY=VALUE",
    action="append",
    default=[],
)
_FOR = {
    "--for": _option("how long, e.g. 30m, 4h, 2d (default 4h)", metavar="SPAN", dest="limit", default="4h"),
    "--why": _option("a sentence for the others", metavar="TEXT", default=""),
    "--off": _flag("take it back"),
}  # fmt: skip
_NODESET = _option("e.g. n[01-04]", metavar="NODESET")
_SERVICE = {
    "--dry-run": _flag("print the exact command, do nothing"),
    "--yes": _flag("run it without a question"),
}

_TRUST = Verb(
    "trust",
    "agree to what cluster and job files would run and read here",
    "rankdeck.cli.check:trust",
    {"files": _option("cluster or job files", metavar="FILE", nargs="+")},
)
VERBS = (
    Verb(
        "check",
        "say everything that is wrong with cluster and job files",
        "rankdeck.cli.check:check",
        {
            "files": _option("cluster or job files", metavar="FILE", nargs="+"),
            "--live": _flag(
                "ask the Kubernetes clusters too: kubectl, server, kinds of jobs, rights"
            ),
        },
    ),
    _TRUST,
    Verb(
        "status",
        "say how every node is",
        "rankdeck.cli.status:status",
        {"--wait": _WAIT, "--watch": _WATCH},
    ),
    Verb(
        "health",
        "judge nodes; exit codes as monitoring plug-ins have them",
        "rankdeck.cli.status:health",
        {
            "nodes": {**_NODESET, "nargs": "?", "default": ""},
            "--wait": _WAIT,
            "--watch": _WATCH,
        },
    ),
    Verb(
        "ack",
        "list a reason of nodes without counting it, until it gets worse or the time is over",
        "rankdeck.cli.status:ack",
        {
            "nodes": _NODESET,
            "check": _option("as `health` names it, e.g. disk.full", metavar="CHECK"),
            "--device": _option("only this device", metavar="DEVICE", default=""),
            **_FOR,
        },
    ),
    Verb(
        "silence",
        "count no reason of these nodes for a while: maintenance",
        "rankdeck.cli.status:silence",
        {"nodes": _NODESET, **_FOR},
    ),
    Verb(
        "drain",
        "take nodes out of Slurm's service: shows the exact command, asks, runs it",
        "rankdeck.cli.nodes:drain",
        {
            "nodes": _NODESET,
            "--why": _option(
                "the reason that Slurm keeps, behind `rankdeck:`", metavar="TEXT", default=""
            ),
            **_SERVICE,
        },
    ),
    Verb(
        "resume",
        "give nodes back to Slurm that were drained from here",
        "rankdeck.cli.nodes:resume",
        {
            "nodes": _NODESET,
            "--anyway": _flag("also those that somebody else, or Slurm, took out of service"),
            **_SERVICE,
        },
    ),
    Verb(
        "expect",
        "learn from the nodes what the cluster file should expect of them",
        "rankdeck.cli.status:expect",
        {
            "--write": _option(
                "put it into the cluster file, or into FILE",
                metavar="FILE",
                nargs="?",
                const="",
            ),
            "--wait": _WAIT,
        },
    ),
    Verb(
        "nodes",
        "list the nodes of the cluster file; asks none of them",
        "rankdeck.cli.status:nodes",
        {"--live": _flag("ask the nodes what they are"), "--wait": _WAIT},
    ),
    Verb(
        "sh",
        "run a shell command on nodes; equal output once, with the nodes that wrote it",
        "rankdeck.cli.nodes:sh",
        {
            "nodes": _NODESET,
            "words": _option(
                "the command, after --; several words are joined, as ssh does",
                metavar="COMMAND",
                nargs="+",
            ),
            "--limit": _option(
                "seconds it may take on a node (default 300)",
                metavar="SECONDS",
                type=float,
                default=300.0,
            ),
            "--fan-out": _option(
                "nodes at the same time (default 64)", metavar="N", type=int, default=64
            ),
            "--lines": _flag("each line as it comes, behind the name of its node"),
        },
    ),
    Verb(
        "ps",
        "say what runs on nodes now: whose it is, what it takes, and to which job and rank it belongs",
        "rankdeck.cli.nodes:ps",
        {
            "nodes": {**_NODESET, "nargs": "?", "default": ""},
            "--job": _option("what each rank of this job takes", metavar="JOB", default=""),
            "--all": _flag("also what takes next to nothing"),
        },
    ),
    Verb(
        "cp",
        "copy a file to nodes, to the same path on each; or a file of each node into a folder here, as NAME.NODE",
        "rankdeck.cli.nodes:cp",
        {
            "file": _option("a file of this machine, or NODESET:FILE", metavar="FILE"),
            "to": _option(
                "nodes, and the path there (default: its name, in the home folder); or a folder here",
                metavar="NODESET[:PATH]|FOLDER",
            ),
            "--replace": _flag("put it in the place of another file of that name"),
        },
    ),
    Verb(
        "run",
        "launch a job and show what its ranks write",
        "rankdeck.cli.run:run",
        {
            "file": _option("a job file, or the name of one", metavar="JOB"),
            "--dry-run": _flag("print the exact files and commands, do nothing"),
            "--server": _flag("with --dry-run, have Kubernetes check the job too"),
            "--detach": _flag("come back once it is started"),
            "--export": _option(
                "write a shell script that does the same without Rankdeck; - is stdout",
                metavar="FILE",
                default="",
            ),
            "--no-preflight": _flag("start it without looking first"),
            "--on": _ON,
            "--set": _SET,
        },
    ),
    Verb(
        "export-script",
        "a job as a shell script that needs no Rankdeck",
        "rankdeck.cli.run:export_script",
        {
            "file": _option("a job file, or the name of one", metavar="JOB"),
            "--output": _option("the script (default: stdout)", metavar="FILE", default=""),
            "--on": _ON,
            "--set": _SET,
        },
    ),
    Verb(
        "preflight",
        "say what would go wrong with a job before it starts",
        "rankdeck.cli.preflight:preflight",
        {
            "file": _option("a job file, or the name of one", metavar="JOB"),
            "--on": _ON,
            "--set": _SET,
            "--fix": _flag("print the job file with every change that was proposed"),
        },
    ),
    Verb(
        "doctor",
        "say what this machine and the nodes lack, in one list, and what to do",
        "rankdeck.cli.preflight:doctor",
        {},
    ),
    Verb(
        "accept",
        "find out whether the cluster is good, and if not, which node or link; or read an output with --read",
        "rankdeck.cli.accept:accept",
        {
            "words": _option(
                "nodes (default: all), or what --read or --baseline takes",
                metavar="WORD",
                nargs="*",
            ),
            "--dry-run": _flag(
                "say what would be done: nodes are asked what they have, nothing is measured"
            ),
            "--from": _option(
                "begin with this stage: single, pairs, leaf, groups",
                metavar="STAGE",
                dest="begin",
                default="",
            ),
            "--only": _option(
                "only these stages, or only these nodes", metavar="STAGE,…|NODESET", default=""
            ),
            "--recipe": _option(
                "what to run, instead of what the nodes have; may be repeated",
                metavar="NAME",
                action="append",
                default=[],
            ),
            "--include-busy": _option(
                "measure these nodes although they are busy", metavar="NODESET", default=""
            ),
            "--exhaustive": _flag("every pair, however many nodes there are"),
            "--rails": _option(
                "RDMA devices or interfaces to measure each for itself (default: all RDMA devices of the fastest rate)",
                metavar="DEVICE,…",
                default="",
            ),
            "--max-crossing": _option(
                "let at most so many of a hundred pairs cross leaves at once: others use the fabric, too",
                metavar="PERCENT",
                default="100",
            ),
            "--repeats": _option(
                "measurements of each direction (default 2)", metavar="N", type=int, default=2
            ),
            "--seconds": _option(
                "of each measurement of bandwidth (default: the recipe's)",
                metavar="N",
                type=int,
                default=0,
            ),
            "--soak": _option(
                "repeat the largest group so long, e.g. 30m", metavar="SPAN", default=""
            ),
            "--like": _option(
                "a job file: container, environment and MPI as in that job",
                metavar="JOB",
                default="",
            ),
            "--resume": _option("go on with a run that was stopped", metavar="RUN", default=""),
            "--list": _flag("the runs that are kept"),
            "--show": _option("a kept run; nothing is measured", metavar="RUN", default=""),
            "--report": _option(
                "write page, JSON, JUnit, Prometheus, node lists and matrix into this folder; with --show those of a kept run",
                metavar="DIR",
                default="",
            ),
            "--baseline": _option(
                "`this`: declare this run the baseline if it is accepted; or show, declare RUN, export, import FILE",
                metavar="WHAT",
                default="",
            ),
            "--exclude": _option("keep jobs away from these nodes", metavar="NODESET", default=""),
            "--readmit": _option("let jobs run there again", metavar="NODESET", default=""),
            "--why": _option("reason of --exclude", metavar="TEXT", default=""),
            "--for": _option(
                "how long --exclude holds (default 7d)", metavar="SPAN", dest="limit", default="7d"
            ),
            "--yes": _flag("do not ask before it starts"),
            "--read": _option(
                "what wrote the outputs: nccl-tests, ib_write_bw, iperf3, imb, himeno, …",
                metavar="RECIPE",
                default="",
            ),
        },
    ),
    Verb(
        "images",
        "say which image lies on which node; `images push FILE NODESET` copies one there",
        "rankdeck.cli.images:images",
        {
            "words": _option(
                "nodes to ask (default: all); or push FILE NODESET",
                metavar="WORD",
                nargs="*",
            ),
            "--image": _option(
                "this image instead of those of the job files",
                metavar="PATH",
                default="",
            ),
            "--to": _option(
                "where to put it (default: its name, in the home folder)",
                metavar="PATH",
                default="",
            ),
            "--replace": _flag("put it in the place of another image of that name"),
            "--runtime": _option(
                "what runs it; podman and docker have a store: push loads an archive into that",
                metavar="NAME",
                default="",
            ),
        },
    ),
    Verb(
        "jobs",
        "list jobs, newest first",
        "rankdeck.cli.jobs:jobs",
        {
            "--all": _flag("also those that ended more than a day ago"),
            "--parts": _flag("also the measurements of acceptance runs, each a job"),
            "--live": _flag("with --json: also what each rank of a running job takes now"),
            "--ended": _flag(
                "Slurm: also jobs of everybody that ended within a day, by its accounting"
            ),
        },
    ),
    Verb(
        "logs",
        "print what the ranks of a job wrote",
        "rankdeck.cli.logs:logs",
        {
            "job": _JOB,
            "--rank": _RANKS,
            "--follow": _flag("go on until the job ends"),
            "--launcher": _flag("what mpirun, torchrun or Slurm wrote, not the ranks"),
            "--stream": _option("only this stream", choices=("out", "err"), default=""),
            "--attempt": _option(
                "Slurm: only this run of a job that was queued again, from 0", metavar="N", type=int
            ),
            "--collapse": _flag(
                "equal lines once, with the ranks that wrote them and those that did not"
            ),
            "--merge": _flag("in the order of time; what ranks wrote together once"),
            "--diff": _option(
                "where two ranks differ, or without RANKS: who leaves the majority where",
                metavar="RANKS",
                nargs="?",
                const="",
            ),
        },
    ),
    Verb(
        "cancel",
        "end every process of a job, and prove it",
        "rankdeck.cli.jobs:cancel",
        {
            "job": _JOB,
            "--grace": _option(
                "seconds from TERM to KILL (default: the job's)",
                metavar="SECONDS",
                type=float,
            ),
            "--task": _option(
                "Slurm: only these tasks of an array, such as 3,5-7", metavar="TASKS"
            ),
            "--yes": _flag("also a job that somebody else started, without a question"),
        },
    ),
    Verb(
        "inspect",
        "say where every rank of a job is now, and who is elsewhere",
        "rankdeck.cli.jobs:inspect",
        {"job": _JOB},
    ),
    Verb(
        "report",
        "write all about a job into one archive, to attach to a ticket; or onto one page",
        "rankdeck.cli.jobs:report",
        {
            "job": _JOB,
            "--html": _option(
                "one page for a browser instead (default JOB.html here)",
                metavar="FILE",
                nargs="?",
                const="",
            ),
            "--output": _option(
                "the archive (default JOB.tar.gz here)", metavar="FILE", default=""
            ),
            "--full": _flag("all of every log, not only its last megabyte"),
        },
    ),
    Verb(
        "replay",
        "show a job again as it happened",
        "rankdeck.cli.run:replay",
        {
            "job": _JOB,
            "--speed": _option(
                "times as fast as it was (default 10)",
                metavar="N",
                type=float,
                default=10.0,
            ),
        },
    ),
    Verb(
        "attach",
        "open the console, on JOB if one is named; not on a terminal: show what it writes until it ends",
        "rankdeck.cli.run:attach",
        {"job": {**_JOB, "nargs": "?", "default": ""}},
    ),
    Verb(
        "export",
        "serve the numbers of all nodes to Prometheus, until Ctrl-C",
        "rankdeck.cli.export:export",
        {
            "--listen": _option(
                "address and port (default 127.0.0.1:9464)",
                metavar="HOST:PORT",
                default="127.0.0.1:9464",
            ),
            "--simulated": _flag('also numbers that are made up, with simulated="1"'),
        },
    ),
    Verb(
        "completion",
        'print what makes a shell complete our commands: `eval "$(rankdeck completion bash)"`',
        "rankdeck.cli.completion:completion",
        {"shell": _option("bash, zsh or fish", choices=("bash", "zsh", "fish"))},
    ),
    Verb(
        "demo",
        "an embedded cluster of three virtual nodes; alone: start it and open the console; or with --nodes a simulated fleet",
        "rankdeck.cli.demo:demo",
        {
            "action": _option(
                "start, stop or describe it",
                nargs="?",
                choices=("up", "down", "status"),
            ),
            "--fault": _option(
                "make numbers of a sick node up, e.g. gpu:hot@node2, rdma:flap; may be repeated",
                metavar="WHAT:FAULT[@NODE]",
                action="append",
                default=[],
            ),
            "--nodes": _option(
                "open the console on so many simulated nodes instead: nothing runs there, faults come and go",
                metavar="N",
                type=int,
                default=0,
            ),
        },
    ),
)
AGENT_MORE = """Anything else is the agent itself, on this machine: `rankdeck agent sample` is
`rankdeck-agent sample`; `rankdeck-agent --help` lists what it does."""
AGENT_HELP = "keep agents on nodes: install, uninstall, status; else the node's side"
_NODES = _option("e.g. n[01-04]; without it all nodes", metavar="NODESET", nargs="?", default="")
_SYSTEM = _flag("a service of the system (the default); needs root or sudo")
_USER = {**_flag("a service of the login user"), "action": "store_false"}
_SCOPE = {
    "--system": {**_SYSTEM, "default": True},
    "--user": {**_USER, "dest": "system"},
}
_DRY = {"--dry-run": _flag("print the exact files and commands, do nothing")}
AGENT_VERBS = (
    Verb(
        "install",
        "put the agent on nodes as a systemd service, or as a DaemonSet, that publishes to the site's broker",
        "rankdeck.cli.agent:install",
        {
            "nodes": _NODES,
            **_SCOPE,
            **_DRY,
            "--kubernetes": _flag(
                "print a DaemonSet instead, for all nodes of a Kubernetes cluster"
            ),
            "--image": _option(
                "its image: any that has Python 3.9 or newer", metavar="IMAGE", default=""
            ),
            "--apply": _flag("give the DaemonSet to Kubernetes (kubectl apply)"),
        },
    ),
    Verb(
        "uninstall",
        "stop the service and take away all of it",
        "rankdeck.cli.agent:uninstall",
        {"nodes": _NODES, **_SCOPE, **_DRY},
    ),
    _TRUST,
    Verb(
        "digest",
        "SHA-256 of the agent that is carried to nodes, as sha256sum prints it",
        "rankdeck.cli.agent:digest",
        {},
    ),
    Verb(
        "status",
        "whether the service runs, which version, and when it was heard last",
        "rankdeck.cli.agent:status",
        {"nodes": _NODES, **_SCOPE},
    ),
)
