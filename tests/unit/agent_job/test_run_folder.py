"""The names in a run folder: what Rankdeck makes there, no file of a job may be."""

from pathlib import Path

import pytest

from rankdeck_agent.job.folder import FolderError, FolderThereError, Journal
from rankdeck_agent.job.layout import make_run_folder, unlink_links
from rankdeck_agent.job.supervisor_state import note_supervisor
from rankdeck_agent.wire import NodePlan
from rankdeck_agent.wire.run_folder import RANK_PREFIX, RESERVED


def test_all_that_a_node_makes_in_a_run_folder_is_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path / "state"))
    folder = make_run_folder(NodePlan(f"names-{tmp_path.name[-12:]}", "n1", ranks=(0, 1)))
    note_supervisor(folder)
    journal = Journal(folder.events)
    journal.reserve()
    journal.close()

    unlink_links(folder)
    made = {path.name for path in folder.path.iterdir()}

    assert {name for name in made if not name.startswith(RANK_PREFIX)} <= RESERVED
    assert {f"{RANK_PREFIX}0", f"{RANK_PREFIX}1"} < made


@pytest.mark.parametrize("missing", ["scratch/purged", "scratch/a-file"])
def test_a_folder_above_that_is_a_file_or_a_dead_link_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch/a-file").touch()
    (tmp_path / "local").symlink_to(missing)
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path / "local"))

    with pytest.raises(
        FolderError, match=rf"{tmp_path}/local(/jobs)? cannot be written: .*link that leads nowhere"
    ) as seen:
        make_run_folder(NodePlan("link-x", "n1", ranks=(0,)))

    assert not isinstance(seen.value, FolderThereError)
