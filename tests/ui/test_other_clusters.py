"""Another namespace of Kubernetes, or an allocation of Slurm, chosen while the console runs."""

from pathlib import Path

import pytest

from rankdeck.model.cluster import Cluster
from rankdeck.schedulers.kubernetes.values import Namespaces
from rankdeck.ui import app as whole
from rankdeck.ui.app import RankdeckApp
from tests.support.programs import python_script
from tests.ui.support.stage import Stage
from tests.ui.test_screens import console, lacks, shows, type_in, until
from tests.unit.test_allocations import SAID

NAMESPACES = Namespaces(allowed=("default", "team"), closed=("secret",), current="default")
KUBERNETES = Cluster(name="k8s", nodes=(), backend="kubernetes", options={"context": "prod"})
SLURM = Cluster(name="a100", nodes=(), backend="slurm", options={"login": "l1"})


def stage(cluster: Cluster = KUBERNETES) -> Stage:
    made = Stage(cluster)
    made.namespaces_there = NAMESPACES
    return made


async def ask(pilot, command: str) -> None:
    await pilot.press("colon")
    await type_in(pilot, command)
    await pilot.press("enter")


async def test_the_list_names_what_is_shown_and_what_is_not_allowed() -> None:
    async with console(stage()) as (app, pilot):
        app.may_change = True
        await ask(pilot, "namespace")

        await shows(app, pilot, "you may look  shown now")
        await shows(app, pilot, "not allowed")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("secret", "you may not list jobs in secret"),
        ("nowhere", "there is no namespace nowhere"),
        ("default", "default is shown already"),
        ("*", "you may not list jobs in all namespaces at once"),
        ("No_Name", "is not the name of a namespace"),
    ],
)
async def test_what_cannot_be_shown_leaves_the_console_as_it_is(name: str, said: str) -> None:
    async with console(stage()) as (app, pilot):
        app.may_change = True
        await ask(pilot, f"namespace {name}")

        await shows(app, pilot, said)
        assert app.next_cluster is None


async def test_a_namespace_that_is_allowed_comes_next_on_the_same_screen() -> None:
    async with console(stage()) as (app, pilot):
        app.may_change = True
        await pilot.press("2")
        await ask(pilot, "namespace team")
        await until(pilot, lambda: app.next_cluster, "no other cluster")

    assert app.next_cluster is not None
    assert app.next_cluster.options == {"context": "prod", "namespace": "team"}
    assert app.first_screen == "jobs"


async def test_tab_completes_namespaces_once_the_server_was_asked() -> None:
    async with console(stage()) as (app, pilot):
        assert app.choices("NAMESPACE") == []
        await shows(app, pilot, "2 namespaces are known now")

        assert app.choices("NAMESPACE") == ["default", "team"]


async def test_a_cluster_without_namespaces_says_so() -> None:
    async with console(stage(SLURM)) as (app, pilot):
        await ask(pilot, "namespace team")
        await shows(app, pilot, "this cluster is not on Kubernetes")


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As within `salloc`, with a scontrol that tells of the allocation."""
    program = tmp_path / "scontrol"
    program.write_text(python_script(f"print({SAID!r})"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")


@pytest.mark.usefixtures("inside")
async def test_inside_an_allocation_it_is_offered_and_becomes_the_cluster() -> None:
    async with console(stage(SLURM)) as (app, pilot):
        app.may_change = True
        await shows(app, pilot, "you are inside allocation 4711")
        assert app.choices("ALLOCATION") == ["here"]
        await ask(pilot, "allocation")
        await until(pilot, lambda: app.next_cluster, "no other cluster")

    assert app.next_cluster is not None
    assert app.next_cluster.name == "a100-4711"
    assert [node.name for node in app.next_cluster.nodes] == ["n1", "n2", "n3", "gpu9"]


@pytest.mark.usefixtures("inside")
async def test_off_goes_back_to_the_cluster_of_the_file() -> None:
    async with console(stage(SLURM)) as (app, pilot):
        app.may_change = True
        await ask(pilot, "allocation off")
        await shows(app, pilot, "the console was started on this cluster")
        await ask(pilot, "allocation 4711")
        await until(pilot, lambda: app.next_cluster, "no other cluster")
    held = app.next_cluster
    assert held is not None

    async with console(stage(held)) as (app, pilot):
        app.may_change, app.first_cluster = True, SLURM
        await lacks(app, pilot, "you are inside allocation")
        await ask(pilot, "allocation off")
        await until(pilot, lambda: app.next_cluster, "no other cluster")

    assert app.next_cluster is SLURM


def test_the_program_goes_on_with_the_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, str]] = []

    def run(app: RankdeckApp) -> int:
        shown.append((app.cluster.name, app.first_screen))
        assert app.first_cluster is KUBERNETES
        if len(shown) == 1:
            app.first_screen, app.next_cluster = "jobs", SLURM
        return 3

    monkeypatch.setattr(RankdeckApp, "run", run)

    status = whole.run_console(
        lambda _: None, whole.UiSettings(theme_folders=()), cluster=KUBERNETES
    )  # pyright: ignore[reportArgumentType]

    assert shown == [("k8s", "fleet"), ("a100", "jobs")]
    assert status == 3
