"""The configurations with which agents publish: broker, login, periods, expectations."""

import json
import os
from collections.abc import Iterable
from typing import Any

from rankdeck.config.clusters import read_accounts
from rankdeck.config.files import expand_path, read_regular
from rankdeck.errors import BrokerError
from rankdeck.model.cluster import Broker, Cluster, Node

PERIOD = 1.0
KEEPALIVE = 10
MANY_NODES_PERIOD = 15.0
"""Seconds between two samples of an installed agent in a large cluster,
unless the cluster file sets another value.
"""
FEW_NODES, HEARTBEAT, SLOW_HEARTBEAT = 2000, 10.0, 30.0


def password_of(broker: Broker) -> str:
    """The password from the variable or file that the cluster file names; "" if none.

    Raises BrokerError.
    """
    if broker.password_env:
        found = os.environ.get(broker.password_env)
        if found is None:
            raise BrokerError(
                f"the environment has no {broker.password_env}, which holds the broker's password"
            )
        return found
    return _text(broker.password_file, "password from").strip() if broker.password_file else ""


def agent_config(cluster: Cluster, broker: Broker, node: str) -> dict[str, object]:
    """The configuration with which a node's agent publishes to the
    site's broker; raises BrokerError.
    """
    accounts = read_accounts(broker.agents_file) if broker.agents_file else dict[str, str]()
    if node in accounts:
        login = {"username": node, "password": accounts[node]}
    else:
        login = {"username": broker.username, "password": password_of(broker)}
    return {
        **common_config(cluster, node),
        "host": broker.host,
        "port": broker.port,
        "tls": broker.tls,
        # The text of the file, which is here and not on the node.
        "ca": read_certificates(broker) if broker.tls else "",
        **login,
    }


def installed_config(cluster: Cluster, broker: Broker, node: str) -> dict[str, object]:
    """The same for an installed agent, which sends samples all the time. Raises BrokerError."""
    usual = PERIOD if len(cluster.nodes) <= FEW_NODES else MANY_NODES_PERIOD
    return {**agent_config(cluster, broker, node), "sample_period": broker.sample_period or usual}


def shared_config(cluster: Cluster, nodes: Iterable[str], sample_period: float) -> dict[str, Any]:
    """Configurations for agents that all get the same line: `configs` has the
    different ones, `of` node -> its index.

    `sample_period` is in seconds.
    """
    own = {node: {**common_config(cluster, node), "sample_period": sample_period} for node in nodes}
    for config in own.values():
        del config["node"]
    configs = list({json.dumps(config): config for config in own.values()}.values())
    return {"of": {node: configs.index(config) for node, config in own.items()}, "configs": configs}


def _text(file: str, what: str) -> str:
    """The text of a file; raises BrokerError, which says `what` of the broker it has."""
    try:
        return read_regular(expand_path(file)).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or error
        raise BrokerError(f"cannot read the broker's {what} {file}: {why}") from error


def read_certificates(broker: Broker) -> str:
    """The certificates that the cluster file names; "" for those of this machine.

    Raises BrokerError.
    """
    if not broker.ca_file:
        return ""
    # OpenSSL takes only ASCII, but people write comments between certificates.
    return _text(broker.ca_file, "certificates in").encode("ascii", "ignore").decode()


def common_config(cluster: Cluster, node: str) -> dict[str, Any]:
    """What every agent of the cluster is told, without broker and login."""
    return {
        "cluster": cluster.name,
        "node": node,
        "keepalive": KEEPALIVE,
        "period": PERIOD,
        "heartbeat": HEARTBEAT if len(cluster.nodes) <= FEW_NODES else SLOW_HEARTBEAT,
        "expect": _expect(cluster, node),
        "rdma_exclude": list(cluster.rdma_exclude),
        "simulate": list(cluster.simulate),
        "root": "/",
    }


def _expect(cluster: Cluster, name: str) -> dict[str, object]:
    """What the node should have according to the cluster file, for its agent."""
    node = cluster.node(name) if cluster.has(name) else Node(name=name)
    return {
        "gpus": node.gpus,
        "rdma": node.rdma,
        "interface": node.interface,
        "other": dict(cluster.expect),
    }
