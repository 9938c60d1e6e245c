"""The rows with which the agent tells of Kubernetes: each checked, and made a value."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from rankdeck.model.field_checks import (
    cleaned_fields,
    fitting_fields,
    is_flag,
    is_integer,
    is_stamp,
    is_text,
    or_null,
)
from rankdeck.model.json_tables import as_list, as_table, as_tables, is_table
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.command import Takes
from rankdeck.schedulers.kubernetes.node import Condition, DeviceCount, KubernetesNode
from rankdeck.schedulers.kubernetes.options import NAMESPACE
from rankdeck.schedulers.kubernetes.state import KubernetesState
from rankdeck.schedulers.kubernetes.values import (
    ClusterAbout,
    KubernetesJob,
    Namespaces,
    Permission,
)
from rankdeck.state.fleet import Fleet

log = logging.getLogger(__name__)
_MOST = 256
"""Most conditions, devices, jobs or rights of one row that are used."""
LONGEST_WORD, LONGEST_SENTENCE = 300, 600


def kubernetes_takes(fleet: Fleet | None, state: KubernetesState) -> Takes:
    """Key of a row -> function that applies its value to fleet (None:
    only jobs are wanted) and state.
    """

    def about(found: object) -> None:
        state.about = about_of(as_table(found))

    def node(found: object) -> None:
        name, view = kubernetes_node_of(as_table(found))
        if name and fleet is not None:
            fleet.scheduler_says(name, view)

    def ready(_found: object) -> None:
        if fleet is not None:
            fleet.await_nodes(awaited=False)

    def trouble(found: object) -> None:
        state.trouble = why = clean_line(found, LONGEST_SENTENCE)
        if why:
            ready(why)
            log.warning("%s", why, extra={"source": "kubernetes"})

    return {
        "about": about,
        "job": lambda found: state.put(kubernetes_job_of(as_table(found))),
        "job_gone": lambda found: state.drop(*_words(found)[:2]),
        "node": node,
        "node_gone": lambda found: node({"name": found, "gone": True}),
        "ready": ready,
        "trouble": trouble,
    }


def _words(found: object) -> tuple[str, ...]:
    return tuple(
        clean_line(word, LONGEST_WORD) for word in as_list(found, _MOST) if isinstance(word, str)
    )


_CONDITION = {"type": is_text(LONGEST_WORD), "status": is_text(20), "reason": is_text(LONGEST_WORD),
              "message": is_text(LONGEST_SENTENCE), "since": or_null(is_stamp)}  # fmt: skip


def kubernetes_node_of(row: Mapping[str, Any]) -> tuple[str, KubernetesNode]:
    """(name, state) of a node; the name is "" if the row is invalid."""
    view = KubernetesNode(
        conditions=tuple(map(_condition, as_tables(row.get("conditions"), _MOST))),
        unschedulable=row.get("unschedulable") is True,
        taints=_words(row.get("taints")),
        devices=dict(filter(None, map(_device, _items(row.get("devices"))))),
        jobs=_words(row.get("jobs")),
        kubelet=clean_line(row.get("kubelet"), 60),
        gone=row.get("gone") is True,
    )
    return clean_line(row.get("name"), 253), view


def _condition(row: Mapping[str, Any]) -> Condition:
    known: dict[str, Any] = {"type": "", "status": "", **cleaned_fields(row, _CONDITION)}
    return Condition(**known)


def _items(found: object) -> Iterable[tuple[str, object]]:
    return list(as_table(found).items())[:_MOST]


_DEVICE = {"capacity": is_integer, "allocatable": is_integer, "asked": or_null(is_integer)}


def _device(item: tuple[str, object]) -> tuple[str, DeviceCount] | None:
    name, row = item
    found = fitting_fields(as_table(row), _DEVICE)
    return (clean_line(name, 253), DeviceCount(**found)) if len(found) == len(_DEVICE) else None


_MOST_NAMESPACES = 500


def namespaces_of(row: Mapping[str, Any]) -> Namespaces:
    """The answer to `cluster namespaces`; what is no name is left out."""
    allowed: dict[str, bool] = {}
    for one in as_tables(row.get("namespaces"), _MOST_NAMESPACES):
        name = one.get("name")
        if isinstance(name, str) and NAMESPACE.fullmatch(name):
            allowed[name] = one.get("allowed") is True
    return Namespaces(
        allowed=tuple(name for name, may in allowed.items() if may),
        closed=tuple(name for name, may in allowed.items() if not may),
        current=clean_line(row.get("current"), 63),
        every=row.get("every") is True,
        why=clean_line(row.get("why"), LONGEST_SENTENCE),
    )


_MOST_PODS, _MOST_RANKS = 4096, 65536
_STATES = ("pending", "running", "done", "failed")
_TEXTS = ("kind", "namespace", "name", "uid", "label", "owner", "why", "ours")


def kubernetes_job_of(row: Mapping[str, Any]) -> KubernetesJob:
    """A job as the agent lists it; invalid fields get their defaults."""
    created, state, spec = (row.get(key) for key in ("created", "state", "spec"))
    pods, ranks = row.get("pods"), row.get("ranks")
    return KubernetesJob(
        **{key: clean_line(row.get(key), LONGEST_WORD) for key in _TEXTS},
        created=float(created) if is_stamp(created) else 0.0,
        pods=min(max(pods, 1), _MOST_PODS) if is_integer(pods) else 1,
        ranks=min(max(ranks, 1), _MOST_RANKS) if is_integer(ranks) else 1,
        parts=dict(filter(None, map(_part, _items(row.get("parts"))))),
        held={name: count for name, count in _items(row.get("held")) if is_integer(count)},
        nodes=_words(row.get("nodes")),
        state=state if state in _STATES else "pending",
        spec=spec if is_table(spec) else None,
    )


_PART_NUMBERS = 2


def _part(item: tuple[str, object]) -> tuple[str, tuple[int, int]] | None:
    """(name, (number of the first pod, pods of each Job)); None if invalid."""
    name, found = item
    given = as_list(found)
    numbers = [n for n in given if is_integer(n) and 0 <= n <= _MOST_PODS]
    fits = len(numbers) == len(given) == _PART_NUMBERS
    return (clean_line(name, 63), (numbers[0], numbers[1])) if fits else None


_RIGHT = {
    "need": is_text(20),
    "kind": is_text(63),
    "what": is_text(LONGEST_WORD),
    "allowed": is_flag,
    "why": is_text(LONGEST_SENTENCE),
}
_NEEDED = 3


def about_of(row: Mapping[str, Any]) -> ClusterAbout:
    """The agent's report about an API server."""
    rights = (cleaned_fields(one, _RIGHT) for one in as_tables(row.get("rights"), _MOST))
    return ClusterAbout(
        **{
            key: clean_line(row.get(key), LONGEST_WORD)
            for key in ("kubectl", "context", "namespace", "server")
        },
        kinds=_words(row.get("kinds")),
        kueue=row.get("kueue") is True,
        rights=tuple(Permission(**one) for one in rights if len(one) >= _NEEDED),
        trouble=clean_line(row.get("trouble"), LONGEST_SENTENCE),
    )
