"""`rankdeck export`: serve the numbers of a cluster to Prometheus."""

import argparse

from rankdeck.cli import choose, output
from rankdeck.cli.opening import Interrupts, open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.model.cluster import Cluster
from rankdeck.prometheus.exporter import Exporter
from rankdeck.prometheus.server import serve_metrics

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def run_export(options: argparse.Namespace, _open_console: object) -> int:
    """Serve metrics until Ctrl-C or SIGTERM."""
    host, port = _address(options.listen)
    cluster = choose.choose_cluster(options.cluster)
    return until_done(_export(cluster, host, port, simulated=options.simulated))


async def _export(cluster: Cluster, host: str, port: int, *, simulated: bool) -> int:
    async with open_for_command(cluster, telemetry=True) as session:
        session.hearing.want(None)
        exporter = Exporter(cluster, session.fleet, switches=session.switches, simulated=simulated)
        async with serve_metrics(host, port, exporter.text) as bound:
            shown = f"[{host}]" if ":" in host else host
            output.print_text(f"http://{shown}:{bound}/metrics")
            output.flush_stdout()
            if host not in LOOPBACK:
                output.print_progress(
                    f"anyone who reaches {shown}:{bound} can read these numbers; "
                    "put a proxy with TLS and a password before it"
                )
            with Interrupts(terminate=True) as interrupts:
                await interrupts.next()
    return output.OK


def _address(text: str) -> tuple[str, int]:
    """Host and port of `--listen`; raises UsageError."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    valid = bare and port.isascii() and port.isdigit() and int(port) < 65536
    if not valid or (":" in bare and bare == host):
        raise UsageError(f"--listen {text[:60]}: write it as 127.0.0.1:9464")
    return bare, int(port)
