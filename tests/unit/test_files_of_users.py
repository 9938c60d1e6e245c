"""Files of users: whatever lies there, a reader answers at once, and a writer
writes its own new file or says why not.
"""

import asyncio
import json
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.acceptance.report_files import write_reports
from rankdeck.config.clusters import read_cluster, write_accounts, write_block
from rankdeck.config.files import (
    append_lines,
    read_regular,
    replace_file,
    write_new,
    write_user_file,
)
from rankdeck.config.jobs import read_job
from rankdeck.config.user import read_settings
from rankdeck.errors import BrokerError, ConfigError, NodeError, RankdeckError, UntrustedError
from rankdeck.images.copy import FetchedFile, places_for
from rankdeck.ui import themes
from rankdeck.ui.fleet_views import FleetView, ViewError, Views
from tests.support.user_files import CLUSTER, HEAD, KINDS, NAMES, READERS, lay, written_beside
from tests.unit.test_accept_reports import Outputs, made_run
from tests.unit.test_fetched_files import BODY, TAIL, Node
from tests.unit.test_fetched_files import HEAD as SIZE

NOT_READ = ("a pipe", "a folder", "a socket", "a device")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", READERS)
def test_no_reader_hangs_or_breaks_whatever_lies_there(tmp_path: Path, name: str) -> None:
    reader = READERS[name]
    for number, kind in enumerate(KINDS):
        path = tmp_path / str(number) / "file.yaml"
        path.parent.mkdir()
        lay(kind, path)

        said = ""
        try:
            reader.read(path)
        except reader.own as error:
            said = str(error)

        assert len(said) < 30_000, kind


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [name for name, one in READERS.items() if one.own])
def test_every_reader_says_what_lies_there_instead_of_a_file(tmp_path: Path, name: str) -> None:
    for kind in NOT_READ:
        path = tmp_path / kind / "file.yaml"
        path.parent.mkdir()
        lay(kind, path)

        with pytest.raises(READERS[name].own) as found:
            READERS[name].read(path)

        # A link that leads out of the folder of a job needs consent before anything is read.
        refused = isinstance(found.value, UntrustedError) and kind == "a device"
        # A folder may be an inventory of Ansible, which only Ansible reads.
        of_ansible = kind == "a folder" and "is read by ansible-inventory" in str(found.value)
        assert refused or of_ansible or f"is {kind}, not a regular file" in str(found.value)


@pytest.mark.parametrize("named", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        CLUSTER + 'ssh: {{identity: "{}"}}\n',
        CLUSTER + 'ssh: {{known_hosts: "{}"}}\n',
        CLUSTER + 'ssh: {{config: "{}"}}\n',
        CLUSTER + 'broker: {{url: "mqtts://h", ca_file: "{}"}}\n',
        CLUSTER + 'broker: {{url: "mqtts://h", agents_file: "{}"}}\n',
        CLUSTER + 'metrics: {{url: "https://h", ca_file: "{}"}}\n',
    ],
)
def test_a_path_that_no_file_can_have_is_no_traceback(
    tmp_path: Path, text: str, named: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / "c.yaml"
    path.write_text(text.format(named))

    with pytest.raises(ConfigError, match=r"c\.yaml:3:"):
        read_cluster(path)


def test_the_text_of_a_job_file_may_name_no_such_path_either(tmp_path: Path) -> None:
    for named in NAMES:
        text = HEAD + f'files: {{{{a: {{{{from: "{named}"}}}}}}}}\n'
        with pytest.raises(ConfigError, match=r":4:"):
            read_job(written_beside(tmp_path / "x", text))


def test_a_bad_theme_is_one_warning_and_all_others_are_there(tmp_path: Path) -> None:
    for number, kind in enumerate(KINDS[1:]):
        lay(kind, tmp_path / f"{number:02}.yaml")
    good = (themes.shipped_folder() / "dark.yaml").read_text().replace("name: dark", "name: mine")
    (tmp_path / "zz.yaml").write_text(good)

    found, wrong = themes.load_themes([themes.shipped_folder(), tmp_path])

    assert {"dark", "mono", "mine"} <= set(found)
    assert len(wrong) == len(KINDS) - 1
    assert all("\n" not in one and ".yaml:" in one for one in wrong)


WORDS = st.one_of(
    st.text(max_size=30), st.from_regex(r"(rgb|color|on|not|link|#)[ (]?[0-9a-f, .%)]{0,12}", fullmatch=True)
)  # fmt: skip


@given(WORDS, WORDS, WORDS)
def test_no_colour_or_style_of_a_theme_breaks_the_console(
    name: str, colour: str, style: str
) -> None:
    surfaces = dict.fromkeys(themes.SURFACES, colour)
    roles = dict.fromkeys(themes.ROLES, style)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.yaml")
        path.write_text(json.dumps({"name": name, "surfaces": surfaces, "roles": roles}))
        found, wrong = themes.load_themes([Path(folder)])

    assert len(found) + len(wrong) == 1
    assert all(one.isprintable() for one in wrong)
    for palette in found.values():
        assert palette.theme()
        assert all(palette.style(role).link is None for role in themes.ROLES)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
FIELDS = ("filter", "sort", "reversed", "columns", "map")


@given(st.dictionaries(st.text(max_size=8), st.dictionaries(st.sampled_from(FIELDS), JSON) | JSON))
def test_no_saved_view_breaks_the_console(views: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "views.json")
        path.write_text(json.dumps(views))
        with suppress(ViewError):
            Views(path).all()


def test_settings_that_cannot_be_looked_at_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert read_settings().theme == ""
    (tmp_path / "rankdeck").mkdir()
    (tmp_path / "rankdeck/settings.yaml").symlink_to("settings.yaml")

    with pytest.raises(ConfigError, match=r"settings\.yaml.*cannot be read"):
        read_settings()


# ---- writing


def fetch(path: Path) -> None:
    asyncio.run(FetchedFile("n1", path).fetch(Node([SIZE + BODY + TAIL])))


WRITERS: dict[str, Callable[[Path], object]] = {
    "accept --report": lambda path: write_reports(made_run(4), Outputs(), path.parent),
    "a script": lambda path: write_user_file(path, "text", program=True),
    "cp from a node": fetch,
    "saved views": lambda path: Views(path).save("hot", FleetView()),
    "accounts of agents": lambda path: write_accounts(str(path), {"n1": "x"}),
}
ERRORS = (RankdeckError, ViewError, OSError)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a socket"])
def test_what_is_no_file_is_not_written_to_and_named(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "report.json"
    lay(kind, path)
    if name == "saved views" and kind == "a folder":
        pytest.skip("it is read before")
    before = path.lstat()

    with pytest.raises(ERRORS) as found:
        WRITERS[name](path)

    said = str(found.value)
    assert f"{kind}, not a regular file" in said
    assert "\n" not in said
    assert path.lstat().st_ino == before.st_ino
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").mkdir()
    target = tmp_path / "precious/file"
    target.write_text("{}")
    (tmp_path / "here").mkdir()
    path = tmp_path / "here/report.json"
    path.symlink_to(target)

    WRITERS[name](path)

    assert target.read_text() == "{}"
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("kind", ["a file", "a link"])
def test_what_belongs_to_another_user_is_not_replaced(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "other").write_text("{}")
    path = tmp_path / "here/report.json"
    path.parent.mkdir()
    if kind == "a link":
        path.symlink_to(tmp_path / "other")
    else:
        path.write_text("{}")
    os.chown(path, 12345, 12345, follow_symlinks=False)

    with pytest.raises(ERRORS, match="belongs to the user 12345, so it is not replaced"):
        WRITERS[name](path)

    assert path.lstat().st_uid == 12345
    assert (tmp_path / "other").read_text() == "{}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_an_expect_block_replaces_no_file_of_another_user(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER)
    os.chown(path, 12345, 12345)

    with pytest.raises(ConfigError, match="belongs to the user 12345"):
        write_block(path, {"gpus": 8}, {})

    assert path.read_text() == CLUSTER
    assert [one.name for one in tmp_path.iterdir()] == ["c.yaml"]


def test_an_expect_block_keeps_the_mode_of_its_file_and_follows_the_users_link(
    tmp_path: Path,
) -> None:
    (tmp_path / "kept").mkdir()
    target = tmp_path / "kept/c.yaml"
    target.write_text(CLUSTER)
    target.chmod(0o644)
    (tmp_path / "c.yaml").symlink_to(target)

    write_block(tmp_path / "c.yaml", {"gpus": 8}, {})

    assert (tmp_path / "c.yaml").is_symlink()
    assert read_cluster(target).expect == {"gpus": 8}
    assert target.stat().st_mode & 0o777 == 0o644


def test_after_an_error_the_old_file_is_whole_and_nothing_new_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    with suppress(ValueError), replace_file(path) as file:
        file.write(b"half")
        raise ValueError

    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_what_appears_while_a_file_is_written_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def meanwhile() -> None:
        with replace_file(path) as file:
            file.write(b"text")
            os.mkfifo(path)

    with pytest.raises(OSError, match="is a pipe"):
        meanwhile()

    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_new_file_replaces_nothing_and_leaves_nothing_where_it_cannot_be_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "there").symlink_to("nothing")

    with pytest.raises(FileExistsError):
        write_new(tmp_path / "there", ["text"])
    with pytest.raises(OSError, match="too long"):
        write_new(tmp_path / ("x" * 300), ["text"])

    assert [one.name for one in tmp_path.iterdir()] == ["there"]


def test_a_name_as_long_as_a_name_may_be_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)

    write_user_file(path, "text")

    assert path.read_text() == "text"


def test_without_replace_a_link_to_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "log.n1").symlink_to("nothing")

    files, kept = places_for(tmp_path, "log", ["n1", "n2"], overwrite=False)

    assert [file.node for file in files] == ["n2"]
    assert isinstance(kept["n1"], NodeError)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a socket"])
def test_a_line_is_appended_only_to_a_file(tmp_path: Path, kind: str) -> None:
    lay(kind, tmp_path / "known_hosts")

    with pytest.raises(OSError, match="not a regular file"):
        append_lines(tmp_path / "known_hosts", ["line"])


def test_a_line_is_appended_behind_a_whole_line_and_through_the_users_link(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("first")
    (tmp_path / "known_hosts").symlink_to("kept")

    append_lines(tmp_path / "known_hosts", ["second"])
    append_lines(tmp_path / "known_hosts", ["third"])
    append_lines(tmp_path / "new", ["line"])

    assert read_regular(tmp_path / "kept") == b"first\nsecond\nthird\n"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_an_accounts_file_that_is_none_is_said_of_the_broker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "accounts")

    with pytest.raises(BrokerError, match="is a pipe, not a regular file"):
        write_accounts(str(tmp_path / "accounts"), {"n1": "x"})
