"""Exports a plan as a POSIX shell script that needs only ssh, not
Rankdeck, and gives the same result. No I/O.
"""

import shlex

from rankdeck.backends.job_network import asked_addresses, needs_network, network_lines
from rankdeck.backends.plan_text import node_export_lines, process_line
from rankdeck.backends.shell_words import end_mark, whole_file
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Access, Cluster, Node
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.plan import Plan
from rankdeck_agent.rules.mpi_daemon import SKIP_SSH_OPTIONS
from rankdeck_agent.wire import (
    JOB_VARIABLE,
    NODE_VARIABLE,
    RANK_IN_SHELL,
    RUN_VARIABLE,
    NodeFile,
    NodePlan,
    run_folder,
)

_RANK = """#!/bin/sh
# Find the run folder of this rank on this node, then be the program.
rank=%(rank)s
for folder in %(folder)s/*; do
    [ ! -d "$folder/rank.$rank" ] || RANKDECK_RUN=$folder
done
RANKDECK_JOB=%(job)s RANKDECK_NODE=${RANKDECK_RUN##*/}
export RANKDECK_RUN RANKDECK_JOB RANKDECK_NODE
exec "$@"
"""
_AGENT = (
    """#!/bin/sh
# mpirun's ssh: hand host and command of a daemon to the script that started the job.
"""
    + SKIP_SSH_OPTIONS
    + """host=${1##*@}
shift
# Waits until the script has it open: what is written into a pipe that nobody reads is lost.
printf '%%s %%s\\n' "$host" "$*" >%(folder)s/spawn
"""
)
_UNMADE = "the folder %s could not be made: can it be reached by ssh, and has /tmp room there?"
_PORT = 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
_HEAD = """#!/bin/sh
# %(what)s
# Made by Rankdeck; needs ssh to the nodes, and there what the job itself needs. Exit status: that of
# the launcher. Ctrl-C ends every process of the job on every node.
set -u
local=$(mktemp -d) || {
    echo "no folder for what this script needs here: set TMPDIR to one with room, that can be written" >&2
    exit 1
}

on() { # NODE; sh there runs what comes on stdin, whatever the login shell is
    case $1 in
%(cases)s
    *) echo "no node $1 in this job" >&2; return 1 ;;
    esac
}

sh_on() { # NODE CODE
    printf '%%s\\n' "$2" | on "$1"
}

stop() { # end what carries the job's mark, and what it starts meanwhile; after 10 s with KILL
    ends=
    for node in %(nodes)s; do
        sh_on "$node" 'told=" " signal=TERM turn=0 left=yes
        while [ "$left" ] && [ $turn -lt 40 ]; do
            left=
            for p in /proc/[0-9]*; do
                tr "\\0" "\\n" <"$p/environ" 2>/dev/null | grep -qx %(mark)s || continue
                left=yes pid=${p#/proc/}
                case $told in *" $signal$pid "*) continue ;; esac
                kill -$signal "$pid"
                told="$told$signal$pid "
            done
            turn=$((turn + 1))
            [ $turn -lt 20 ] || signal=KILL
            [ -z "$left" ] || sleep 0.5
        done' 2>/dev/null &
        ends="$ends $!"
    done
    wait $ends
}

tidy() {
    for node in %(nodes)s; do sh_on "$node" 'rm -rf %(folder)s'; done
    rm -rf "$local"
}

fail() { # NODE WHAT
    echo "$1: $2" >&2
    tidy
    exit 1
}

trap 'stop; tidy; exit 130' INT TERM
for node in %(nodes)s; do
    sh_on "$node" 'rm -rf %(folder)s && mkdir -m 700 %(folder)s' ||
        fail "$node" %(unmade)s
done
"""


def write_export(plan: Plan, cluster: Cluster) -> str:
    """The script; an sbatch script as it is.

    Raises LaunchError for other plans that are one document.
    """
    if plan.text and not plan.can.document:
        return plan.text
    if plan.text:
        raise LaunchError(
            "plan",
            f"a job of the {plan.backend} backend is a document already: see `run --dry-run`",
        )
    parts = [_head(plan, cluster), *(_prepare(plan, node) for node in plan.nodes)]
    parts += [_address(plan, index) for index in asked_addresses(plan)]
    if plan.port_on:
        python = next(iter(cluster.access.pythons), "python3")
        find = shlex.quote(f"{python} -c {shlex.quote(_PORT)}")
        parts.append(f"RANKDECK_PORT=$(sh_on {plan.port_on} {find}) || exit 1\n")
    return "\n".join([*parts, _start(plan)])


def _address(plan: Plan, index: int) -> str:
    """The line that asks a node for its address in the job network."""
    node = plan.nodes[index]
    look = network_lines(node.network, node.interface)
    code = shlex.quote(f'{look}; echo "$RANKDECK_ADDRESS"')
    return f"RANKDECK_ADDRESS_{index}=$(sh_on {node.node} {code}) || exit 1\n"


def _folder(plan: Plan) -> str:
    return f"/tmp/rankdeck.{plan.job}"


def _head(plan: Plan, cluster: Cluster) -> str:
    names = [node.node for node in plan.nodes]
    cases = [f"    {n}) {_ssh(cluster.access, cluster.node(n))} ;;" for n in names]
    return _HEAD % {
        "what": f"job {plan.name}: {plan.world_size} ranks on {fold_nodes(names)}",
        "cases": "\n".join(cases),
        "nodes": " ".join(names),
        "mark": _mark(plan),
        "folder": _folder(plan),
        "unmade": shlex.quote(_UNMADE % _folder(plan)),
    }


def _ssh(access: Access, node: Node) -> str:
    """The ssh command for one node, with the login options of the cluster
    file; without ssh for this machine.
    """
    if node.here:
        return "(cd && sh -s)"
    words = ["ssh", "-o", "BatchMode=yes"]
    words += ["-F", access.config] if access.config else []
    words += ["-p", str(node.port)] if node.port != 22 else []
    words += ["-l", access.user] if access.user else []
    words += ["-i", access.identity] if access.identity else []
    if access.known_hosts:
        words += ["-o", f"UserKnownHostsFile={access.known_hosts}"]
    return shlex.join([*words, node.host, "sh", "-s"])


def _prepare(plan: Plan, node: NodePlan) -> str:
    """Shell lines that write the files of one node."""
    folder = _folder(plan)
    values = {"folder": folder, "job": plan.job, "rank": RANK_IN_SHELL}
    ranks = " ".join(f"rank.{rank}" for rank in node.ranks)
    files = [
        *node.files,
        NodeFile("../rank", _RANK % values, 0o755),
        NodeFile(run_folder.SHIM, _RANK % values, 0o755),
        NodeFile("../launch-agent", _AGENT % values, 0o755),
        NodeFile("launch-agent", _AGENT % values, 0o755),
        NodeFile("env", _environment(plan, node)),
        *([NodeFile("start", _start_file(node), 0o755)] if node.processes else []),
    ]
    laid = [line for file in files for line in whole_file(file).all]
    end = end_mark(f"ON_{_place(node)}", "\n".join(laid).split("\n"))
    lines = [
        f"on {node.node} <<'{end}' || fail {node.node} {shlex.quote(_UNMADE % folder)}",
        "set -e",
        f"mkdir -p {folder}/{node.node} && cd {folder}/{node.node}",
        f"{RUN_VARIABLE}=$PWD",
        f"mkdir -p {ranks}" if ranks else ":",
        *(_folders(files)),
        *laid,
        end,
    ]
    return "\n".join(lines) + "\n"


def _mark(plan: Plan) -> str:
    return f"{JOB_VARIABLE}={plan.job}"


def _place(node: NodePlan) -> str:
    return "".join(c if c.isalnum() else "_" for c in node.node)


def _folders(files: list[NodeFile]) -> list[str]:
    above = {file.path.rpartition("/")[0] for file in files} - {"", ".."}
    return [f"mkdir -p {shlex.quote(folder)}" for folder in sorted(above)]


def _environment(plan: Plan, node: NodePlan) -> str:
    """The environment of every process of the job on this node, as a file to read with `.`."""
    own = {JOB_VARIABLE: plan.job, NODE_VARIABLE: node.node, "PYTHONUNBUFFERED": "1"}
    lines = [f"{RUN_VARIABLE}={_folder(plan)}/{node.node}", f"export {RUN_VARIABLE}"]
    if needs_network(node):
        lines.append(network_lines(node.network, node.interface))
    # Only what is set above is left to sh to expand.
    lines += node_export_lines({**own, **node.env})
    return "\n".join(lines) + "\n"


_WAIT = (
    "for pid in $pids; do",
    '    wait "$pid" || { code=$?; [ "$status" != 0 ] || status=$code; }',
    "done",
)
"""Shell lines that wait for all of $pids; $status becomes the first exit status that is not 0."""


def _start_file(node: NodePlan) -> str:
    """A script that starts this node's processes side by side; its exit
    status is the first that is not 0.
    """
    lines = ['. "${0%/*}/env"', "export RANKDECK_PORT", "cd", "status=0 pids="]
    for process in node.processes:
        lines += [f"{{ {process_line(process)}; }} &", 'pids="$pids $!"']
    return "\n".join(["#!/bin/sh", *lines, *_WAIT, "exit $status"]) + "\n"


def _start(plan: Plan) -> str:
    """Shell lines that start every node with processes, start MPI
    daemons on the others, and wait.
    """
    folder = _folder(plan)
    first = next(node.node for node in plan.nodes if node.processes)
    relay = any(not node.processes for node in plan.nodes)
    lines = ["status=0", "pids="]
    if relay:
        # With the variable that marks the job, so that `stop` ends this loop too.
        loop = f'env {_mark(plan)} sh -c "while IFS= read -r line; do echo \\"\\$line\\"; done"'
        lines += [
            f"sh_on {first} 'mkfifo {folder}/spawn' || exit 1",
            'mkfifo "$local/spawn"',
            f"sh_on {first} '{loop} <>{folder}/spawn' >\"$local/spawn\" &",
            "while read -r host command; do",
            f'    sh_on "$host" ". {folder}/$host/env; cd; ( $command ) </dev/null" &',
            'done <"$local/spawn" &',
        ]
    found = "".join(f" RANKDECK_ADDRESS_{i}=$RANKDECK_ADDRESS_{i}" for i in asked_addresses(plan))
    for node in plan.nodes:
        if node.processes:
            run = (
                f"RANKDECK_PORT=${{RANKDECK_PORT:-0}}{found} {folder}/{node.node}/start </dev/null"
            )
            lines += [f'sh_on {node.node} "{run}" &', 'pids="$pids $!"']
    return "\n".join([*lines, *_WAIT, "stop", "tidy", "exit $status"]) + "\n"
