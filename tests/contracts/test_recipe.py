"""Contract tests of the acceptance recipes."""

import pytest

from rankdeck import plugins
from rankdeck.acceptance.output_text import Asked, read_output
from rankdeck.acceptance.planning import named_stages
from rankdeck.acceptance.recipe import Endpoints, HardwareFacts, Recipe
from rankdeck.acceptance.values import Outcome, Stage
from rankdeck.errors import UnknownPluginError
from rankdeck.model.job_spec import Launch

NAMES = plugins.plugin_names("recipes")
PAIR = Endpoints(nodes=("n1", "n2"), addresses={"n2": "10.0.0.2"}, ranks_per_node=2, port=18520)
JUNK = ("x", "{", "{}", "[]", "#", "# size busbw\n1", "#bytes #iterations\n-1 2", "1 2 3 4\n" * 50)


@pytest.fixture(params=NAMES)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return plugins.find_plugin("recipes", request.param)()


def test_it_is_registered_by_its_own_name(recipe: Recipe) -> None:
    assert recipe.name in NAMES
    assert type(recipe) is plugins.find_plugin("recipes", recipe.name)


def test_it_says_its_unit_and_how_long_it_takes(recipe: Recipe) -> None:
    assert recipe.traits.unit
    assert 0 <= recipe.traits.tolerance < 1
    assert recipe.traits.seconds > 0


def test_a_node_must_have_the_launcher_and_the_program_that_it_starts(recipe: Recipe) -> None:
    commands = recipe.commands(PAIR)
    launchers = {Launch.MPI: {"mpirun"}, Launch.TORCHRUN: {"torchrun"}}
    program = {commands.argv[0]} - {"sh", "python3"}  # these two are on every node

    assert set(recipe.needs) >= launchers.get(commands.launch, set()) | program
    assert {"rdma"} <= set(recipe.needs) or recipe.traits.fabric != "rdma"


def test_asked_for_by_name_it_is_planned_on_single_nodes_or_between_pairs(recipe: Recipe) -> None:
    stages = {one.stage for one in named_stages(recipe.name)}

    assert (stages == {Stage.SINGLE}) == recipe.one_node
    assert (Stage.PAIRS in stages) != recipe.one_node


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2"), ("n1", "n2", "n3", "n4")])
def test_its_commands_are_words_that_need_no_shell(recipe: Recipe, nodes: tuple[str, ...]) -> None:
    commands = recipe.commands(Endpoints(nodes=nodes, ranks_per_node=2))

    assert commands.launch in Launch
    assert commands.argv
    assert all(
        type(word) is str and "\0" not in word for word in (*commands.argv, *commands.server)
    )
    assert recipe.commands(Endpoints(nodes=nodes, ranks_per_node=2)) == commands


def test_who_sends_in_one_direction_names_the_receiver_and_its_port(recipe: Recipe) -> None:
    commands = recipe.commands(PAIR)

    assert bool(commands.server) == recipe.traits.directed
    if commands.server:
        assert "10.0.0.2" in commands.argv
        assert "18520" in commands.argv
        assert "18520" in commands.server
        assert commands.argv[0] == commands.server[0]


def test_what_is_no_output_of_it_gives_one_reason_and_no_value(recipe: Recipe) -> None:
    for text in JUNK:
        (one,) = read_output(recipe, text.encode(), Asked(hosts=("n1",), ranks=2))

        assert (one.status, one.value) == (Outcome.NOT_MEASURED, None), text
        assert one.text


def test_nothing_is_expected_of_what_is_not_known(recipe: Recipe) -> None:
    (one,) = read_output(recipe, b"x")

    expected = recipe.expect(one, HardwareFacts())

    assert expected is None or expected.ceiling > 0


def test_an_unknown_recipe_is_named_with_those_that_are_near() -> None:
    for wrong, near in (("nccl-test", "nccl-tests"), ("OSU_BW", "osu"), ("IMB-MPI1", "imb")):
        with pytest.raises(UnknownPluginError, match=f"did you mean `{near}`"):
            plugins.find_plugin("recipes", wrong)
