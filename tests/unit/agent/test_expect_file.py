"""`health --expect FILE`: the block of a cluster file, read without a YAML library."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rankdeck.config.clusters import expect_block
from rankdeck_agent.config import ExpectError, read_expectations

WANTED = {"gpu_count": 8, "gpu_model": "H100 80GB", "rdma_rate_gbps": 400, "mounts": "/data, /home"}
FORMS = (
    "expect:\n  gpu_count: 8\n  gpu_model: H100 80GB   # all alike\n  rdma_rate_gbps: 400\n  mounts: [/data, /home]\n",
    "gpu_count: 8\ngpu_model: 'H100 80GB'\nrdma_rate_gbps: 400\nmounts:\n  - /data\n  - /home\n",
    "cluster: x\nnodes:\n  - {name: a, gpus: 8}\n\nexpect: # of every node\n    gpu_count: 8\n\n"
    '    gpu_model: "H100 80GB"\n    rdma_rate_gbps: 400\n    mounts:\n    - /data\n    - /home\nssh: {user: me}\n',
    "expect: {gpu_count: 8, gpu_model: H100 80GB, rdma_rate_gbps: 400, mounts: [/data, /home]}\n",
    '{"gpu_count": 8, "gpu_model": "H100 80GB", "rdma_rate_gbps": 400,\n "mounts": ["/data", "/home"]}',
)


def given_file(tmp_path, text):
    file = tmp_path / "expect.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("text", FORMS)
def test_every_form_of_the_block_is_the_same(tmp_path, text):
    assert read_expectations(given_file(tmp_path, text)) == WANTED


WORDS = st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=20)


@given(st.dictionaries(st.sampled_from(sorted(WANTED)), WORDS | st.integers(0, 1 << 40)))
@example({"gpu_count": "08"})
def test_what_the_console_writes_is_read_as_yaml_reads_it(tmp_path_factory, values):
    text = expect_block(values, {})
    file = given_file(tmp_path_factory.mktemp("expect"), text)

    assert read_expectations(file) == (yaml.safe_load(text)["expect"] or {})


def outcome(file):
    try:
        return read_expectations(str(file))
    except ExpectError as error:
        return str(error)


@given(st.text(max_size=200))
def test_no_text_gives_anything_but_entries_or_one_sentence(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("expect") / "e"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))

    found = outcome(file)

    if isinstance(found, str):
        assert found.startswith(f"{file}:")
    else:
        assert all(isinstance(value, (str, int, float)) for value in found.values())


def test_a_wrong_line_is_named(tmp_path):
    with pytest.raises(ExpectError, match=r"expect.yaml:3: 'gpu model A100' is not `key: value`"):
        read_expectations(given_file(tmp_path, "expect:\n  gpu_count: 8\n  gpu model A100\n"))
    with pytest.raises(ExpectError, match="No such file"):
        read_expectations(str(tmp_path / "none"))
