"""How pytest-xdist distributes the tests: which stay together, which come first.

A file is one group: its tests run in one process, in their order, and share its clusters. Some
files share one cluster between them, so they are one group; the tests of others share nothing, so
each goes to the next free worker.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import pytest

TOGETHER: Mapping[str, str] = {
    "test_containers": "root lab",
    "test_rdma_page": "RDMA lab",
    "test_rdma_accept": "RDMA lab",
    "test_rdma_jobs": "RDMA lab",
    "test_rdma_ports": "RDMA lab",
    "test_root_images": "root lab",
    "test_root_lab": "root lab",
    "test_root_preflight": "root lab",
    "test_root_slurm": "slurm lab",
    "test_root_slurm_cluster": "slurm lab",
    "test_root_slurm_inside": "slurm lab",
    "test_root_slurm_page": "slurm lab",
    "test_root_slurm_accounting": "other slurm lab",
    "test_root_slurm_arrays": "other slurm lab",
    "test_root_slurm_ends": "other slurm lab",
    "test_two_kernels": "RDMA lab",
}
"""File -> its group, for files that share a group."""
APART = frozenset({"test_demo", "test_demo_faults", "test_footers", "test_minimal_debian"})
"""Files whose tests share nothing."""
FIRST = (
    "RDMA lab",
    "other slurm lab",
    "root lab",
    "slurm lab",
    "test_minimal_debian",
    "test_accept_lab",
    "test_matrix_processes",
    "test_kubernetes",
    "test_reopened",
    "test_matrix_nodes",
    "test_faults",
    "test_kubernetes_attach",
    "test_main_path",
    "test_killed_console",
    "test_preflight",
    "test_kubernetes_faults",
    "test_matrix_files",
    "test_lab_jobs",
    "test_images",
    "test_matrix_space",
    "test_kubernetes_keeper",
    "test_matrix_wires",
    "test_insight",
    "test_stalls",
    "test_two_pis",
    "test_demo_faults",
    "test_footers",
    "test_border",
    "test_words",
    "test_screens",
    "test_contrast",
    "test_keys",
    "test_pictures",
)
"""The files that take longest, in the order in which they start."""


def group(test: str) -> str:
    """The group of a test, by its id (`tests/unit/test_x.py::test_it[a]`)."""
    file = PurePosixPath(test.partition("::")[0])
    return test if file.stem in APART else TOGETHER.get(file.stem, str(file))


def rank(test: str) -> int:
    """Position of a test among the slow ones; small numbers come first."""
    name = group(test).partition("::")[0]
    name = PurePosixPath(name).stem
    return FIRST.index(name) if name in FIRST else len(FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute groups in the order of the tests. Called by pytest-xdist with `-n`."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

        def remove_node(self, node: Any) -> str | None:
            # pytest-xdist 3.8 distributes a crashed worker's finished groups again: a
            # worker that gets one waits for ever.
            if work := self.assigned_work.get(node):
                self.assigned_work[node] = {
                    name: tests for name, tests in work.items() if not all(tests.values())
                }
            return super().remove_node(node)

        def _assign_work_unit(self, node: Any) -> None:
            # Sending to a worker that has just crashed fails: its groups are
            # distributed again once that is known.
            with suppress(OSError):
                super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return Groups(config, log)


def order(items: list[pytest.Item]) -> None:
    """Sort long tests first, so that all workers finish at nearly the same time."""
    items.sort(key=lambda item: (not item.get_closest_marker("slow"), rank(item.nodeid)))
