"""`rankdeck export`: the fleet for Prometheus."""

import argparse
import asyncio

from rankdeck.cli import choose, output
from rankdeck.cli.opening import Interrupts, opened, until_done
from rankdeck.cli.output import UsageError
from rankdeck.model.cluster import Cluster
from rankdeck.prometheus.exporter import Exporter, serve

LOOK_PERIOD = 0.25
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def export(options: argparse.Namespace, _open_console: object) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    host, port = _address(options.listen)
    cluster = choose.cluster(options.cluster)
    return until_done(_export(cluster, host, port, simulated=options.simulated))


async def _export(cluster: Cluster, host: str, port: int, *, simulated: bool) -> int:
    async with opened(cluster, telemetry=True) as session:
        session.want(None)
        exporter = Exporter(cluster, session.fleet, switches=session.switches, simulated=simulated)
        async with serve(host, port, exporter.families) as bound:
            shown = f"[{host}]" if ":" in host else host
            output.say(f"http://{shown}:{bound}/metrics")
            output.flush()
            if host not in LOOPBACK:
                output.progress(
                    f"anyone who reaches {shown}:{bound} can read these numbers; "
                    "put a proxy with TLS and a password before it"
                )
            await _watch(exporter)
    return output.OK


async def _watch(exporter: Exporter) -> None:
    """Look at the fleet until somebody ends us."""
    with Interrupts(terminate=True) as interrupts:
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(_look(exporter))
            await interrupts.next()
            looking.cancel()


async def _look(exporter: Exporter) -> None:
    while True:
        exporter.look()
        await asyncio.sleep(LOOK_PERIOD)


def _address(text: str) -> tuple[str, int]:
    """Host and port of `--listen`; raises UsageError."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    valid = bare and port.isascii() and port.isdigit() and int(port) < 65536
    if not valid or (":" in bare and bare == host):
        raise UsageError(f"--listen {text[:60]}: write it as 127.0.0.1:9464")
    return bare, int(port)
