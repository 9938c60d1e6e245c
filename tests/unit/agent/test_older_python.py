"""What the agent has in place of methods of newer Pythons."""

import shutil
import threading
from pathlib import Path

from rankdeck_agent.older_python import find_paths


def test_paths_are_found_part_by_part_and_sorted(tmp_path: Path) -> None:
    for name in ("b/2/x", "a/9/x", "a/10/x", "a/3/y", ".c/1/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    found = find_paths(tmp_path, "*/*/x")

    assert [str(path.relative_to(tmp_path)) for path in found] == [
        ".c/1/x",
        "a/10/x",
        "a/9/x",
        "b/2/x",
    ]
    assert find_paths(tmp_path, "a//3/*/") == [tmp_path / "a/3/y"]
    assert find_paths(tmp_path / "b/2/x", "*/*") == []
    assert find_paths(tmp_path / "none", "*") == []


def test_a_folder_that_vanishes_while_it_is_listed_counts_as_empty(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number:04}" / "within").mkdir(parents=True)
    remover = threading.Thread(
        target=lambda: [shutil.rmtree(tmp_path / f"{number:04}") for number in range(1999, 999, -1)]
    )
    remover.start()
    found = find_paths(tmp_path, "*/*")
    remover.join()

    kept = {tmp_path / f"{number:04}" / "within" for number in range(1000)}
    assert kept <= set(found)
