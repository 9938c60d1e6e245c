"""The agent's command line: finds the command, then imports only what it needs."""

import sys

if sys.version_info < (3, 6):  # noqa: UP036  nodes may have any version
    sys.exit(
        # Not an f-string: the oldest versions could not parse it.
        "rankdeck-agent needs Python 3.6 or newer; %s is %d.%d: name another one with `python:` in the cluster file"  # noqa: UP031
        % (sys.executable, sys.version_info[0], sys.version_info[1])
    )

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Callable, Optional

USAGE = """usage: rankdeck-agent telemetry                    publish; configuration as one line of JSON on stdin
       rankdeck-agent --config FILE                publish without a console, until SIGTERM
       rankdeck-agent sample [--root DIR] [--json] print one reading of this machine
       rankdeck-agent health [--root DIR] [--expect FILE] [--json]
                                                   judge this machine; exits 0, 1, 2, 3 as Nagios wants
       rankdeck-agent kernel-log [FILE|-] [--json] print the events in a log of the kernel
       rankdeck-agent gpu-processes                print the processes that compute on each GPU, one JSON object a line
       rankdeck-agent rdma-queue-pairs [DEVICE]    print the counters of single queue pairs
       rankdeck-agent service install|uninstall|status ...  see `rankdeck agent install --help`
       rankdeck-agent forget FILE                  erase what the broker retains of this node
       rankdeck-agent job ...                      supervise the ranks of a job
       rankdeck-agent cluster check|list|watch     report nodes and jobs of a Kubernetes cluster; configuration as JSON on stdin
       rankdeck-agent kubernetes ...               keep a job on Kubernetes
       rankdeck-agent inside inspect|witness       say where the ranks of this pod are
       rankdeck-agent slurm submit|keep            give a job to Slurm, and keep all jobs there
       rankdeck-agent image ...                    look at images, send and receive them
       rankdeck-agent sh                           run a command; request and cancel on stdin, answers as JSON
       rankdeck-agent ps [signal]                  print what runs here; send a signal (request as JSON on stdin)
       rankdeck-agent preflight                    report what a job would find here; requests on stdin, answers on stdout
       rankdeck-agent --version"""


def main(argv: Optional[list[str]] = None) -> int:
    """Run one command; returns the exit code. `argv` is without the program's name."""
    given = sys.argv[1:] if argv is None else argv
    verb, *words = given or ["--help"]
    if verb.startswith("--config="):
        return _config([verb.partition("=")[2], *words])
    if verb in _MAINS:
        return _run(_MAINS[verb], "main", words)
    if verb in _ALONE:
        module, name, complaint = _ALONE[verb]
        return _wrong(complaint) if words else _run(module, name)
    run = _VERBS.get(verb)
    return run(words) if run else _wrong(f"unknown command {verb[:40]!r}")


def _run(module: str, name: str, *arguments: Any) -> int:  # noqa: ANN401 - functions of other modules
    """Import a module of the agent, and call a function of it that returns an exit code."""
    return int(getattr(import_module(f"rankdeck_agent.{module}"), name)(*arguments))


def _config(words: list[str]) -> int:
    if len(words) != 1 or not words[0]:
        return _wrong("--config takes one file")
    from rankdeck_agent.telemetry import run_headless

    return run_headless(words[0])


def _on_a_tree(words: list[str], verb: str) -> int:
    """Run a verb that takes `--root DIR` and `--json`; health takes `--expect FILE` too."""
    root, expect, as_json = "/", "", False
    while words:
        word = words.pop(0)
        if word == "--json":
            as_json = True
        elif word == "--root" and words:
            root = words.pop(0)
        elif word == "--expect" and words and verb == "health":
            expect = words.pop(0)
        else:
            return _wrong(f"{verb}: unknown argument {word[:40]!r}")
    if verb == "health":
        from rankdeck_agent.sampler import print_health

        return print_health(root, as_json=as_json, expect=expect)
    from rankdeck_agent.sampler import print_sample

    return print_sample(root, as_json=as_json)


def _kernel_log(words: list[str]) -> int:
    rest = [word for word in words if word != "--json"]
    if len(rest) > 1 or any(word.startswith("--") for word in rest):
        return _wrong("kernel-log takes one file, or - for standard input")
    from rankdeck_agent.kernel_log import kernel_log

    return kernel_log("".join(rest), as_json="--json" in words)


def _job(words: list[str]) -> int:
    if words[:1] in (["follow"], ["browse"]):
        # A user waits to see a log: do not load what only starts or ends jobs.
        from rankdeck_agent.job.follow import main as look

        return look(words)
    from rankdeck_agent.job.control_cli import main as job

    return job(words)


def _slurm(words: list[str]) -> int:
    from rankdeck_agent.private_files import set_private_umask

    verb, arguments = "".join(words[:1]), words[1:]
    if verb not in _SLURM or len(arguments) != _SLURM_ARGUMENTS.get(verb, 0):
        return _wrong(f"slurm takes one of: {', '.join(_SLURM)}")
    set_private_umask()
    module, name = _SLURM[verb]
    return _run(f"schedulers.slurm.{module}", name, *arguments)


def _ps(words: list[str]) -> int:
    if words not in ([], ["signal"]):
        return _wrong("ps takes nothing, or `signal` with its request on standard input")
    from rankdeck_agent.command import run_process_list

    return run_process_list(words)


def _rdma_queue_pairs(words: list[str]) -> int:
    if len(words) > 1 or "".join(words).startswith("-"):
        return _wrong("rdma-queue-pairs takes at most one RDMA device")
    from rankdeck_agent.collectors.rdma_queue_pairs import main as rdma_queue_pairs

    return rdma_queue_pairs("".join(words))


def _forget(words: list[str]) -> int:
    if len(words) != 1:
        return _wrong("forget takes the agent's configuration file")
    from rankdeck_agent.telemetry import erase_retained

    return erase_retained(words[0])


def _version(_: list[str]) -> int:
    from rankdeck_agent import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    print(f"rankdeck-agent {__version__} (Python {python})")
    return 0


def _help(_: list[str]) -> int:
    print(USAGE)
    return 0


def _wrong(why: str) -> int:
    from rankdeck_agent.rules.visible import make_visible

    print(f"rankdeck-agent: {make_visible(why, 400)}\n{USAGE}", file=sys.stderr)
    return 2


_SLURM: Mapping[str, tuple[str, str]] = {
    "submit": ("submit", "submit_job"),
    "keep": ("keeper", "keep_slurm_jobs"),
    "watch": ("cluster", "watch_queue"),
    "list": ("cluster", "list_all"),
    "service": ("node_change", "change_nodes"),
    "attach": ("submit", "attach_slurm_job"),
    "look": ("attach", "print_slurm_job"),
    "beside": ("beside_ranks", "inspect_beside_ranks"),
    "standing": ("beside_ranks", "look_beside_ranks"),
    "silence": ("beside_ranks", "keep_standing_ranks"),
    "hear": ("beside_ranks", "hear_job_nodes"),
    "tell": ("beside_ranks", "tell_telemetry"),
    "ended": ("ended_jobs", "print_ended_jobs"),
    "change": ("change", "change_jobs"),
    "ask": ("ask", "answer_question"),
}
"""Command of `slurm` -> (module, function); imported only when used,
because the keeper must stay small.
"""
_SLURM_ARGUMENTS = {"beside": 1, "standing": 1, "silence": 2, "hear": 2}
"""Command of `slurm` -> number of its arguments, if not 0."""

_MAINS = {
    "service": "service",
    "cluster": "schedulers.kubernetes.questions",
    "kubernetes": "schedulers.kubernetes.keeper",
    "inside": "schedulers.kubernetes.pod_ranks",
    "image": "images.image_cli",
    "nvml": "collectors.nvidia_reader",
}
"""Command -> module whose `main` takes the arguments and checks them."""
_ALONE = {
    "telemetry": (
        "telemetry",
        "run_telemetry",
        "telemetry takes its configuration on standard input, and no arguments",
    ),
    "sh": (
        "command",
        "run_shell_command",
        "sh takes its command on standard input, and no arguments",
    ),
    "gpu-processes": ("collectors.gpu_processes", "main", "gpu-processes takes no arguments"),
}
"""Command without arguments -> (module, function, what to say if there are some)."""
_VERBS: Mapping[str, Callable[[list[str]], int]] = {
    "--config": _config,
    "sample": lambda words: _on_a_tree(words, "sample"),
    "health": lambda words: _on_a_tree(words, "health"),
    "kernel-log": _kernel_log,
    "forget": _forget,
    "job": _job,
    "slurm": _slurm,
    "preflight": lambda _: _run("preflight", "main"),
    "ps": _ps,
    "rdma-queue-pairs": _rdma_queue_pairs,
    "--version": _version,
    "--help": _help,
    "-h": _help,
}

if __name__ == "__main__":
    sys.exit(main())
