"""What real programs wrote, and every trap in it: only a complete, valid
result of those asked for has a value.
"""

import codecs
import html
import json
import re

import pytest

from rankdeck import plugins
from rankdeck.acceptance.output_text import Asked, read_output
from rankdeck.acceptance.recipe import HardwareFacts, OutputReading
from rankdeck.acceptance.recipes.node import expected_gosa
from rankdeck.acceptance.values import Outcome
from tests.support.targets import TARGETS

RECORDED = {
    file: raw for file, raw in TARGETS["accept"].seeds().items() if not file.startswith("broke-")
}
"""File -> the name of its recipe, then the output as it was; without what a fuzzer made."""


def read(recipe: str, output: str | bytes, **asked: object) -> OutputReading:
    raw = output if isinstance(output, bytes) else output.encode()
    (one,) = read_output(plugins.find_plugin("recipes", recipe)(), raw, Asked(**asked))  # type: ignore[arg-type]
    return one


def recorded(file: str) -> tuple[OutputReading, ...]:
    recipe, _, raw = RECORDED[file].partition(b"\n")
    return read_output(plugins.find_plugin("recipes", recipe.decode())(), raw)


MEASURED = (
    ("nccl-2x1", 2.81, "GB/s", 2, "22.5 Gb/s: network-bound, healthy"),
    ("nccl-1x8", 232.83, "GB/s", 8, "normal for A100 (Azure asks 228)"),
    ("nccl-2x8", 164.07, "GB/s", 16, "fair; below OCI's present limit of 185: look at the QPs"),
    ("gloo-2", 0.325, "GB/s", 2, "at 16 MiB"),
    ("gloo-4", 0.199, "GB/s", 4, "at 16 MiB"),
    ("write-bw", 23.14, "Gb/s", 2, "at the limit of MTU 1024; MTU 9000 would give 24.5"),
    ("write-bw-all", 6.93 * 8 * 2**20 / 1e9, "Gb/s", 2, "2 smaller sizes were not measured"),
    ("write-lat", 162.09, "us", 2, "at 8 B"),
    ("rping-client", 3.0, "pings", 2, "RDMA works"),
    ("mpi4py-busy", 546.3, "MB/s", None, "does not say which ranks took part"),
    ("mpi4py-ring", 20 * 4 * 1.048576 / 0.263108, "MB/s", 4, "ring of 4"),
    ("imb-pingpong", 676.41, "MB/s", 2, "at 4 MiB"),
    ("himeno-two-pis", 820.243942, "MFLOPS", 8, "the slower one sets the pace"),
    ("himeno-1", 3475.043351, "MFLOPS", 1, "correct: Gosa within 0.2 %"),
    ("himeno-2", 454.513312, "MFLOPS", 2, "correct: Gosa within 1.7 %"),
    ("himeno-4", 1146.699374, "MFLOPS", 4, "correct: Gosa within 0.6 %"),
    ("sysbench-cpu", 486.17, "events/s", 1, "other nodes"),
    ("sysbench-memory", 928.89, "MiB/s", 1, "other nodes"),
    ("fio-read", 604.589027, "MB/s", None, "seqread, read"),
    ("iperf3-tcp", 9.82174330854053, "Gb/s", 2, "10 retransmits"),
    ("iperf3-server-output", 6.7067090783454875, "Gb/s", 2, "3 retransmits"),
    ("iperf3-udp-old", 43.7e-3 * (1 - 0.61), "Gb/s", 2, "61 % lost"),
    ("iperf3-udp-json-old", 44.6594e-3 * (1 - 0.605225), "Gb/s", 2, "60.5 % lost"),
    ("osu-bw", 1055.77, "MB/s", None, "at 4 MiB"),
    ("osu-barrier", 0.35, "us", None, "barrier"),
    ("osu-pairs", 1936.0, "MB/s", 4, "2 pairs together: the sum hides a slow one"),
    ("iperf3-text", 13.5, "Gb/s", 2, "other nodes"),
)


@pytest.mark.parametrize(("file", "value", "unit", "ranks", "words"), MEASURED)
def test_a_whole_output_gives_its_value_and_a_sentence(
    file: str, value: float, unit: str, ranks: int | None, words: str
) -> None:
    (one,) = recorded(file)

    assert (one.status, one.unit, one.ranks) == (Outcome.MEASURED, unit, ranks)
    assert one.value == pytest.approx(value, rel=1e-5)
    assert words in one.text


NOT_MEASURED, FAILED, REFUSED = Outcome.NOT_MEASURED, Outcome.FAILED, Outcome.REFUSED
WITHOUT = (
    ("osu-latency-cut", NOT_MEASURED, "the table ends at 1 MiB"),
    ("osu-wrong-values", FAILED, "wrong values at 16 bytes"),
    ("write-bw-uncalibrated", NOT_MEASURED, "clock could not be calibrated"),
    ("write-bw-no-server", NOT_MEASURED, "never began: `Couldn't connect to 10.9.0.1:18515`"),
    ("write-bw-server-killed", FAILED, "after traffic began: `Couldn't read remote address`"),
    ("write-bw-json", NOT_MEASURED, "--out_json"),
    ("write-bw-bare", NOT_MEASURED, "no result row"),
    ("write-bw-wrong-server", FAILED, "the same program"),
    ("read-bw-wrong-client", NOT_MEASURED, "never began"),
    ("rping-server", NOT_MEASURED, "this is the server's output"),
    ("mpi4py-hello", NOT_MEASURED, "helloworld alone"),
    ("mpi4py-one-rank", NOT_MEASURED, "larger than the mean"),
    ("imb-allreduce", NOT_MEASURED, "the time ran out at 131072 bytes"),
    ("himeno-wrong-ranks", NOT_MEASURED, "Invalid number of PE"),
    ("stress-ng-busy", NOT_MEASURED, "only 15 % of the CPU was ours"),
    ("stress-ng-stream", NOT_MEASURED, "no line of metrics"),
    ("fio-no-directory", NOT_MEASURED, "is not a directory"),
    ("iperf3-busy", NOT_MEASURED, "never began: `the server is busy"),
    ("iperf3-refused", NOT_MEASURED, "never began: `unable to connect"),
    ("iperf3-refused-text", NOT_MEASURED, "never began: `unable to connect"),
    ("iperf3-refused-old", NOT_MEASURED, "never began: `unable to send control message: Bad file"),
    ("iperf3-interrupted", NOT_MEASURED, "it was stopped: `interrupt - the client has terminated"),
    ("iperf3-killed", FAILED, "after traffic began: `unable to write"),
)


@pytest.mark.parametrize(("file", "status", "words"), WITHOUT)
def test_an_output_that_is_no_result_has_no_value_and_says_why(
    file: str, status: Outcome, words: str
) -> None:
    (one,) = recorded(file)

    assert (one.status, one.value) == (status, None)
    assert words in one.text


def test_every_recorded_output_is_judged_by_a_test() -> None:
    several = {
        "imb-multi",
        "imb-groups-together",
        "iperf3-bidir-old",
        "iperf3-bidir",
        "hpcc",
        "fio-text",
        "fio-terse",
        "fio-all-formats",
    }

    assert {row[0] for row in (*MEASURED, *WITHOUT)} | several == set(RECORDED)


def test_each_group_of_imb_and_each_direction_of_iperf3_is_a_result() -> None:
    assert [(one.status, one.ranks, one.text[:19]) for one in recorded("imb-multi")] == [
        (NOT_MEASURED, 2, "group 0: ranks 0-1:"),
        (NOT_MEASURED, 2, "group 1: ranks 2-3:"),
    ]
    assert [one.value for one in recorded("fio-text")] == [119.0, 71.5]
    assert [one.value for one in recorded("fio-all-formats")] == [299.593142]
    assert [one.value for one in recorded("fio-terse")] == [203.1616, 216.2688]
    old = recorded("iperf3-bidir-old")
    assert [one.value for one in old] == pytest.approx([0.922531, 1.096211], rel=1e-5)
    assert "13 retransmits)" in old[0].text, "of 3.9, which calls the sums of both alike"
    assert "the other direction" in old[1].text
    assert [one.value for one in recorded("iperf3-bidir")] == pytest.approx([9.573433, 7.565475])


def test_of_groups_of_imb_that_share_a_row_it_is_the_slowest() -> None:
    pingpong, reduced, whole = recorded("imb-groups-together")

    assert [one.ranks for one in (pingpong, reduced, whole)] == [4, 4, 4]
    assert (pingpong.value, reduced.value) == (375.73, 11707.53)
    assert "the slowest of 2 groups at once" in pingpong.text
    assert "group" not in whole.text


def test_hpcc_gives_network_latency_memory_and_hpl() -> None:
    found = {one.facts["metric"]: (one.value, one.unit, one.ranks) for one in recorded("hpcc")}

    assert found == {
        "MinPingPongBandwidth_GBytes": (0.310548, "GB/s", 2),
        "MaxPingPongLatency_usec": (0.466083, "us", 2),
        "StarSTREAM_Triad": (36.4918, "GB/s", 2),
        "HPL_Tflops": (0.000238206, "Tflop/s", 2),
    }


# ---- nccl-tests: layouts and traps

DEVICES = "".join(
    f"#  Rank {rank:2d} Group  0 Pid  {9000 + rank} on {host} device  {rank % 2} [0x14] NVIDIA A100\n"
    for rank, host in enumerate(("n1", "n1", "n2", "n2"))
)
HEAD = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
ROW = " 1024  256  float  sum  -1  100  2.00  3.00  0  100  1.90  2.85  0\n"
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 2.9\n"
NCCL = DEVICES + HEAD + ROW + FOOT
ITERATED = (
    "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw"
    " #wrong i_min i_max i_p99 i_cv%\n"
    "1024 256 float sum -1 100 2.00 3.00 0 90 777 700 2.1 100 1.90 2.85 N/A 91 888 800 2.2\n"
)
OLD = (
    "# size count type redop time algbw busbw error time algbw busbw error\n"
    "1024 256 float sum 100 2.00 3.00 2e-07 100 1.90 2.85 4e-07\n"
)
GATHER = (
    "# size count type time algbw busbw error time algbw busbw error\n"
    "1024 256 float 100 2.00 3.00 0e+00 100 1.90 2.85 0e+00\n"
)
STAMPED = HEAD.rstrip() + " timestamp\n" + ROW.rstrip() + " 2026-11-22 10:11:12\n"


@pytest.mark.parametrize(
    "table", [HEAD + ROW, ITERATED, OLD, GATHER, STAMPED, "   " + HEAD + "    " + ROW]
)
def test_columns_of_nccl_tests_are_found_by_the_header_whatever_the_version(table: str) -> None:
    one = read("nccl-tests", DEVICES + table + FOOT)

    assert (one.status, one.out_of_place, one.in_place) == (Outcome.MEASURED, 3.00, 2.85)
    assert one.value == 2.85, "the slower of both"
    assert (one.size, one.ranks, one.hosts) == (1024, 4, ("n1", "n2"))


def test_the_largest_size_counts_and_not_the_average() -> None:
    rows = "".join(ROW.replace(" 1024 ", f" {size} ") for size in (8, 64)) + ROW.replace(
        "2.85", "1.11"
    )

    one = read("nccl-tests", DEVICES + HEAD + rows + FOOT)

    assert (one.size, one.value) == (1024, 1.11)


@pytest.mark.parametrize("tag", ["[1,0]<stdout>: ", "0: ", "[0] ", "[1,0]<stdout>:"])
def test_tags_of_launchers_are_stripped(tag: str) -> None:
    tagged = "".join(tag + line for line in NCCL.splitlines(keepends=True))

    assert read("nccl-tests", tagged).value == 2.85


@pytest.mark.parametrize(
    "coded",
    [
        codecs.BOM_UTF8 + NCCL.encode(),
        codecs.BOM_UTF16_LE + NCCL.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + NCCL.encode("utf-16-be"),
        NCCL.replace("\n", "\r\n").rstrip().encode(),
    ],
)
def test_marks_other_encodings_and_a_missing_last_newline_are_read(coded: bytes) -> None:
    assert read("nccl-tests", coded).value == 2.85


NCCL_TRAPS = (
    ("two separate runs", NCCL + NCCL, REFUSED, "ranks 0-3 are there twice"),
    ("one rank", DEVICES.splitlines(keepends=True)[0] + HEAD + ROW + FOOT, REFUSED, "one rank"),
    ("split", DEVICES.replace("2 Group  0", "2 Group  1") + HEAD + ROW + FOOT, REFUSED, "hides the slow one"),
    ("nothing moved", NCCL.replace("3.00", "0.00").replace("2.85", "0.00"), REFUSED, "nothing was moved"),
    ("no devices", HEAD + ROW + FOOT, NOT_MEASURED, "Using devices"),
    ("cut off", DEVICES + HEAD + ROW, NOT_MEASURED, "cut off"),
    ("no rows", DEVICES + HEAD + FOOT, NOT_MEASURED, "no result row"),
    ("half a row", DEVICES + HEAD + " 1024  256  float  sum\n" + FOOT, NOT_MEASURED, "the last row is not whole"),
    ("not a number", NCCL.replace("2.85", "nan").replace("3.00", "-"), NOT_MEASURED, "no busbw"),
    ("wrong values", NCCL.replace("3.00  0", "3.00  7"), FAILED, "wrong values: 7"),
    ("too slow by itself", NCCL.replace("bandwidth : 2.9", "bandwidth : 2.9 FAILED"), FAILED, "NCCL_TESTS_MIN_BW"),
    ("no head", NCCL.split("\n", 1)[1], NOT_MEASURED, "no device lines of ranks 0"),
    ("out of bounds", NCCL.replace("values : 0 OK", "values : 2 FAILED"), FAILED, "wrong values: 2"),
    ("NCCL failure", DEVICES + "n2: Test NCCL failure common.cu:959 'unhandled cuda error'\n", FAILED, "n2: Test NCCL failure"),
    ("timeout", DEVICES + HEAD + ROW + "n1: Test timeout (30s) common.cu:523\n", FAILED, "Test timeout"),
    ("in use", "n1: Test CUDA failure common.cu:1 'all CUDA-capable devices are busy or unavailable'", NOT_MEASURED, "in use"),
    ("no GPU", "Invalid number of GPUs: 8 requested but only 4 were found.\n", NOT_MEASURED, "not enough GPUs"),
    ("empty", "", NOT_MEASURED, "empty"),
    ("binary", "\0\1\2", NOT_MEASURED, "no text"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("output", "status", "words"),
    [row[1:] for row in NCCL_TRAPS],
    ids=[row[0] for row in NCCL_TRAPS],
)
def test_a_trap_of_nccl_tests_is_no_result(output: str, status: Outcome, words: str) -> None:
    one = read("nccl-tests", output)

    assert (one.status, one.value) == (status, None)
    assert words in one.text


def test_a_result_of_other_hosts_or_ranks_than_asked_for_is_refused() -> None:
    assert read("nccl-tests", NCCL, hosts=("n2", "n1"), ranks=4).status is Outcome.MEASURED
    assert read("nccl-tests", NCCL, hosts=("n1", "n3")).status is REFUSED
    assert "it ran on n[1-2], not on n[1,3]" in read("nccl-tests", NCCL, hosts=("n1", "n3")).text
    assert "4 ranks, not with 8" in read("nccl-tests", NCCL, ranks=8).text
    ping = RECORDED["mpi4py-busy"].partition(b"\n")[2]
    assert read("mpi4py.bench", ping, hosts=("n1", "n2")).status is REFUSED


@pytest.mark.parametrize("cell", ["inf", "nan", "-nan"])
def test_a_row_of_nccl_tests_with_infinity_on_one_side_is_not_measured(cell: str) -> None:
    one = read("nccl-tests", DEVICES + HEAD + ROW.replace("3.00", cell) + FOOT)

    assert (one.status, one.value) == (Outcome.NOT_MEASURED, None)
    assert f"`{cell}`" in one.text
    lacks = read("nccl-tests", DEVICES + HEAD + ROW.replace("2.85", "N/A") + FOOT)
    assert (lacks.status, lacks.value) == (Outcome.MEASURED, 3.0)


def test_a_host_is_the_same_with_and_without_its_domain() -> None:
    raw = DEVICES + HEAD + ROW + FOOT  # its programs say n1 and n2, as nccl-tests does everywhere

    assert read("nccl-tests", raw, hosts=("n1.example.org", "N2")).status is Outcome.MEASURED
    assert read("nccl-tests", raw, hosts=("n1.example.org", "n3")).status is Outcome.REFUSED
    long = raw.replace("on n1 ", "on n1.a.org ").replace("on n2 ", "on n1.b.org ")
    assert read("nccl-tests", long, hosts=("n1.a.org", "n1.c.org")).status is Outcome.REFUSED
    assert read("nccl-tests", long, hosts=("n1.a.org", "n1.b.org")).status is Outcome.MEASURED


def test_a_result_that_ended_with_an_error_is_failed() -> None:
    assert read("nccl-tests", NCCL, exit_code=1).status is FAILED
    assert read("nccl-tests", NCCL, exit_code=0).status is Outcome.MEASURED


def nccl_json(**changes: object) -> str:
    sides = {
        "out_of_place": {"time": 1.0, "alg_bw": 2.0, "bus_bw": 3.0, "nwrong": None},
        "in_place": {"time": 1.0, "alg_bw": 1.9, "bus_bw": 2.85, "nwrong": 0.0},
    }
    devices = [
        {"rank": rank, "group": 0, "hostname": f"n{rank + 1}", "device_info": "A100"}
        for rank in (0, 1)
    ]
    whole = {
        "version": 3, "env": ["TOKEN=hunter2"], "config": {"devices": devices},
        "results": [{"size": 1024, "root": "    -1", **sides}],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 2.9, "okay": "unchecked"},
    }  # fmt: skip
    return json.dumps(whole | changes)


def test_the_json_of_nccl_tests_is_read_and_its_environment_is_not() -> None:
    one = read("nccl-tests", nccl_json())

    assert (one.status, one.value, one.hosts) == (Outcome.MEASURED, 2.85, ("n1", "n2"))
    assert "hunter2" not in str(one)
    assert read("nccl-tests", nccl_json()[:-20]).status is NOT_MEASURED
    assert (
        read("nccl-tests", nccl_json(out_of_bounds={"count": 1, "okay": "false"})).status is FAILED
    )
    slow = read("nccl-tests", nccl_json(average_bus_bandwidth={"bandwidth": 2.9, "okay": "false"}))
    assert (slow.status, "NCCL_TESTS_MIN_BW" in slow.text) == (FAILED, True)
    assert read("nccl-tests", nccl_json(results=[])).status is NOT_MEASURED
    assert (
        read("nccl-tests", nccl_json().replace("2.85", '"nan"').replace("3.0,", '"nan",')).status
        is NOT_MEASURED
    )


def split_json(**changes: object) -> str:
    """Two pairs of hosts from one launch, as nccl-tests 2.19.2 writes it;
    the second pair takes twice the time.
    """
    devices = [
        {"rank": rank, "group": rank // 2, "hostname": f"n{rank + 1}", "device_info": "H100"}
        for rank in range(4)
    ]
    times = [
        [100.0, 100.0, 900.0],
        [99.0, 101.0, 101.0],
        [200.0, 200.0, 200.0],
        [150.0, 190.0, 150.0],
    ]
    side = {"time": 150.0, "alg_bw": 20.0, "bus_bw": 20.0, "nwrong": 0}
    row = {
        "size": 1 << 30, "out_of_place": side, "in_place": side,
        **dict.fromkeys(("out_of_place_per_iter", "in_place_per_iter"), {"per_process_max_times_us": times} | changes),
    }  # fmt: skip
    return nccl_json(config={"devices": devices}, results=[row])


def test_each_group_of_split_mode_has_its_own_number_from_one_launch() -> None:
    found = read_output(plugins.find_plugin("recipes", "nccl-tests")(), split_json().encode())

    assert [(one.status, one.hosts, one.ranks) for one in found] == [
        (Outcome.MEASURED, ("n1", "n2"), 2),
        (Outcome.MEASURED, ("n3", "n4"), 2),
    ]
    # 20 GB/s in the 150 µs of the average: 3,000 in 101 and in 200.
    assert [one.value for one in found] == pytest.approx([20 * 150 / 101, 15.0])
    assert "group 1, ranks 2-3" in found[1].text


@pytest.mark.parametrize(
    "times", [None, [], [[1.0]], [[1.0]] * 3, [[1.0], [1.0], [1.0], ["nan"]], 7]
)
def test_split_mode_without_the_times_of_every_process_is_refused(times: object) -> None:
    (one,) = read_output(
        plugins.find_plugin("recipes", "nccl-tests")(),
        split_json(per_process_max_times_us=times).encode(),
    )

    assert (one.status, one.value) == (REFUSED, None)
    assert "hides the slow one" in one.text


# ---- the others

HELLO = "".join(f"Hello, World! I am process {rank} of 2 on n{rank + 1}.\n" for rank in (1, 0))
PING = "# MPI PingPong Test\n# Size [B]  Bandwidth [MB/s] | Time Mean [s] ± StdDev [s]  Samples\n"
PING += "   1048576            900.00 | 1.1e-03 ± 1.0e-04    100\n"
OSU = "# OSU MPI Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)        Validation\n1024  10.5  Pass\n4194304  1940.25  Pass\n"
OSU_REDUCE = "# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)\n1048576   900.1   800.1   1000.1\n"
STREAM = "Function    Best Rate MB/s  Avg time     Min time     Max time\nCopy:  10000.0  0.1 0.1 0.1\nTriad:           12345.6     0.1  0.1  0.1\n"
VALID = "Solution Validates: avg error less than 1.000000e-13 on all three arrays\n"
STRESS = (
    "stress-ng: info:  [7] dispatching hogs: 2 cpu\n"
    "stress-ng: metrc: [7] cpu  1143  3.00  5.90  0.01  381.00  193.0\n"
    "stress-ng: info:  [7] successful run completed in 3.03s\n"
)
DCGM = (
    "Successfully ran diagnostic for group.\n+------+------+\n| Diagnostic | Result |\n"
    "|  Deployment ------+------|\n| Denylist | Pass |\n| NVML Library | Pass |\n| PCIe | Skip - All |\n"
    "+------+------+\n"
)
BUSY = {
    "end": {
        "sum_received": {"bits_per_second": 3e8},
        "cpu_utilization_percent": {"host_total": 98.2},
    }
}


def dcgm_json(*outcomes: str) -> str:
    results = [{"entity_id": n, "status": outcome} for n, outcome in enumerate(outcomes)]
    tests = [{"name": "memory", "results": results}]
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "H", "tests": tests}]}})


OTHERS = (
    ("mpi4py.bench", HELLO + PING, Outcome.MEASURED, 900.0, ""),
    ("mpi4py.bench", HELLO.replace("1 of 2", "0 of 1").replace("0 of 2", "0 of 1") + PING, REFUSED, None, "separate runs"),
    ("mpi4py.bench", HELLO.splitlines()[0] + "\n" + PING, NOT_MEASURED, None, "only ranks 1 of 2"),
    ("mpi4py.bench", "ModuleNotFoundError: No module named 'mpi4py'\n", NOT_MEASURED, None, "mpi4py"),
    ("mpi4py.bench", "time for 20 loops = 0.2 seconds (1 processes, 1048576 bytes)", REFUSED, None, "nothing was moved"),
    ("osu", OSU, Outcome.MEASURED, 1940.25, ""),
    ("osu", OSU_REDUCE, Outcome.MEASURED, 1000.1, ""),
    ("osu", OSU.replace("1940.25  Pass", "1940.25  Fail"), FAILED, None, "wrong values at 4194304"),
    ("osu", "osu_bw: command not found", NOT_MEASURED, None, "it did not run"),
    ("stream", STREAM + VALID, Outcome.MEASURED, 12345.6, ""),
    ("stream", STREAM, NOT_MEASURED, None, "Solution Validates"),
    ("stream", VALID, NOT_MEASURED, None, "Triad"),
    ("stream", STREAM + "Failed Validation on array a[]\n", FAILED, None, "wrong values"),
    ("stress-ng", STRESS, Outcome.MEASURED, 381.0, ""),
    ("dcgmi", DCGM, Outcome.MEASURED, 2.0, "2 pass, 1 skip"),
    ("dcgmi", DCGM.replace("NVML Library | Pass", "NVML Library | Fail - GPU: 3"), FAILED, None, "failed: NVML Library"),
    ("dcgmi", "Error: unable to establish a connection to the specified host: localhost\n", NOT_MEASURED, None, "unable to establish"),
    ("dcgmi", dcgm_json("Pass", "Skip"), Outcome.MEASURED, 1.0, ""),
    ("dcgmi", dcgm_json("PASS", "FAIL"), FAILED, None, "failed: memory"),
    ("dcgmi", dcgm_json("Skip"), NOT_MEASURED, None, "no test passed"),
    ("iperf3", json.dumps(BUSY), NOT_MEASURED, None, "98 % busy"),
    ("rping", "count 10\nping data: rdma-ping-0: AB\n", FAILED, None, "1 of 10"),
)  # fmt: skip


@pytest.mark.parametrize(("recipe", "output", "status", "value", "words"), OTHERS)
def test_what_other_programs_print_and_their_traps(
    recipe: str, output: str, status: Outcome, value: float | None, words: str
) -> None:
    one = read(recipe, output)

    assert (one.status, one.value) == (status, value)
    assert words in one.text


def test_gosa_off_its_curve_is_a_wrong_value() -> None:
    output = RECORDED["himeno-1"].partition(b"\n")[2]

    one = read("himeno", output.replace(b"4.538793e-04", b"9.538793e-04"))

    assert one.status is FAILED
    assert "wrong values: Gosa" in one.text
    assert expected_gosa(2766) == pytest.approx(3.072472e-05)
    assert expected_gosa(1) is None


def test_a_link_rate_that_nobody_gave_is_called_a_guess() -> None:
    (guessed,) = read_output(
        plugins.find_plugin("recipes", "ib_write_bw")(), RECORDED["write-bw"].partition(b"\n")[2]
    )

    assert "that a 25 Gb/s link (a guess from the value) carries at MTU 1024" in guessed.text


def test_a_number_that_cannot_be_is_not_measured() -> None:
    output = RECORDED["write-bw"].partition(b"\n")[2]
    link = HardwareFacts(link_gbps=25)
    recipe = plugins.find_plugin("recipes", "ib_write_bw")()

    (absurd,) = read_output(recipe, output.replace(b"23.14 ", b"2314.0 "), known=link)
    (slow,) = read_output(recipe, output.replace(b"23.14 ", b"12.00 "), known=link)

    assert absurd.status is NOT_MEASURED
    assert (slow.status, slow.grade) == (Outcome.MEASURED, "slow")
    assert "51.9 % of the 23.14 that a 25 Gb/s link carries at MTU 1024; slow" in slow.text


HOSTILE = (
    "A [",
    "# Size [B] Bandwidth A [A",
    "|" + " " * 500,
    "\n",
    "# size busbw ",
    "# Size (",
    "#\n",
)


@pytest.mark.long
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_huge_output_is_read_in_little_time(piece: str) -> None:
    raw = (piece * (1 << 16))[: 1 << 16].encode()

    # pytest's limit of a minute ends a pattern that looks again and again.
    readings = [
        read_output(plugins.find_plugin("recipes", name)(), raw)[0]
        for name in plugins.plugin_names("recipes")
    ]

    assert {one.status for one in readings} == {NOT_MEASURED}


def test_files_of_json_one_after_another_are_a_result_each() -> None:
    two = nccl_json().rstrip() + "\n" + nccl_json().replace('"n2"', '"n3"')
    recipe = plugins.find_plugin("recipes", "nccl-tests")()

    for text in (two, f"$ cat out.json.0 out.json.1\n{two}", f"# nThread 1\n{NCCL}{two}"):
        found = read_output(recipe, text.encode())
        assert [one.status for one in found[-2:]] == [Outcome.MEASURED] * 2, text
        assert [one.hosts for one in found[-2:]] == [("n1", "n2"), ("n1", "n3")]
    assert (len(found), found[0].ranks) == (3, 4)


def test_a_json_that_calls_its_values_out_of_bounds_has_wrong_values() -> None:
    bad = nccl_json(out_of_bounds={"count": 0, "okay": "false"})

    assert read("nccl-tests", bad).text.startswith("wrong values")


@pytest.mark.long
def test_why_a_thousand_runs_were_cut_is_looked_for_once() -> None:
    run = (
        "# nThread 1\n# Avg bus bandwidth : 1\n"
        + "n1:1:2 [0] NCCL INFO Channel 00/02 : 0 1\n" * 100
    )

    # pytest's limit of a minute ends a look through all of it for each run.
    readings = read_output(plugins.find_plugin("recipes", "nccl-tests")(), (run * 1000).encode())

    assert {one.status for one in readings} == {NOT_MEASURED}


# ---- what a stranger's file looks like


def _tagged(tag: bytes):
    """Each line behind this tag."""
    return lambda raw: b"\n".join(tag + line for line in raw.split(b"\n"))


def _numbered(form: str):
    """Each line behind a tag with a time of its own."""
    return lambda raw: b"\n".join(
        form.format(second=number % 60, part=number * 7 % 1000).encode() + line
        for number, line in enumerate(raw.split(b"\n"))
    )


STRANGE = {
    "windows": lambda raw: raw.replace(b"\n", b"\r\n"),
    "windows-twice": lambda raw: raw.replace(b"\n", b"\r\r\n"),
    "no-last-newline": lambda raw: raw.rstrip(b"\n"),
    "powershell": lambda raw: (
        codecs.BOM_UTF16_LE + raw.decode("utf-8", "replace").encode("utf-16-le")
    ),
    "colours": lambda raw: b"\n".join(
        b"\x1b[1;32m" + line + b"\x1b[0m\x1b[K" for line in raw.split(b"\n")
    ),
    "title": _tagged(b"\x1b]0;user@n1: ~\x07"),
    "shell": lambda raw: (
        b"Script started on 2026-11-22\n$ module load cuda\n" + raw + b"\n$ exit\n"
    ),
    "srun": _tagged(b"0: "),
    "srun-of-many": _tagged(b"  0: "),
    "mpirun-4": _tagged(b"[1,0]<stdout>:"),
    "mpirun-5": _tagged(b"[1,0]<stdout>: "),
    "prterun": _tagged(b"[prterun-n1-12345@1,0]<stdout>: "),
    "mpirun-5-detailed": _tagged(b"[Sun Nov 22 22:41:38 2026]<stdout>: [1,0][n1:13825]<stdout>: "),
    "mpirun-4-timestamp": _tagged(b"Sun Nov 22 22:20:18 2026[1,0]<stdout>:"),
    "hydra": _tagged(b"[0] "),
    "torch": _tagged(b"[rank0]: "),
    "torchrun": _tagged(b"[default0]:"),
    "kubectl": _tagged(b"[pod/nccl-launcher-x7/main] "),
    "kubernetes": _tagged(b"2026-11-22T22:20:18.123456789Z "),
    "ts": _tagged(b"Nov 22 22:20:18 "),
    "time-in-brackets": _tagged(b"[2026-11-22 22:20:18] "),
    "pdsh": _tagged(b"node-01.example.org: "),
    "compose": _tagged(b"nccl-launcher-1  | "),
    "journal": _tagged(b"Nov 22 22:20:18 node-01 slurmstepd[4711]: "),
    "kubectl-and-time": _tagged(b"[pod/nccl-launcher-x7/main] 2026-11-22T22:20:18.123456789Z "),
    "ts-relative": _tagged(b"00:00:12 "),
    "ts-epoch": _tagged(b"1764000000.123456 "),
    "since-boot": _tagged(b"[   12.345678] "),
    "gitlab": _tagged(b"2026-11-22T22:20:18.123456Z 00O "),
    "container-log": _tagged(b"2026-11-22T22:20:18.123456789+00:00 stdout F "),
    "logging": _tagged(b"2026-11-22 22:20:18,123 - INFO - "),
    "swarm": _tagged(b"bench.1.x7abc@node-01    | "),
    "parallel": _tagged(b"n1\t"),
    "lsf": _tagged(b"node-01> "),
    "pdsh-of-srun": _tagged(b"gpu-01: 0: "),
    "indented": _tagged(b"    "),
    "from-a-web-page": lambda raw: raw.replace(b" ", b"\xc2\xa0"),
    "columns-by-tab": lambda raw: re.sub(rb"(?<=\S) {2,}(?=\S)", b"\t", raw),
    "rotated": lambda raw: b"\0" * 100 + raw,
    "pyxis": lambda raw: b"pyxis: importing docker image: nvcr.io#nvidia/pytorch\n" + raw,
    "stern": _tagged(b"nccl-launcher-x7k2p main "),
    "stern-and-its-own-lines": lambda raw: (
        b"+ nccl-launcher-x7k2p \xe2\x80\xba main\n" + _tagged(b"nccl-launcher-x7k2p main ")(raw)
    ),
    "kail": _tagged(b"default/nccl-launcher-x7k2p[main]: "),
    "loguru": _numbered("2026-11-22 22:20:{second:02}.{part:03} | INFO     | __main__:run:42 - "),
    "logging-by-default": _tagged(b"INFO:root:"),
    "deepspeed": _numbered("[2026-11-22 22:20:{second:02},{part:03}] [INFO] [runner.py:541:main] "),
    "glog": _numbered("I1122 22:20:{second:02}.{part:06} 12345 bench.cc:12] "),
    "syslog": _numbered("<14>1 2026-11-22T22:20:{second:02}.{part:03}Z n1 bench 4711 - - "),
    "journal-since-boot": _numbered("[{second:5}.{part:06}] node-01 bash[4711]: "),
    "airflow": _numbered("[2026-11-22, 22:20:{second:02} UTC] {{{{subprocess.py:93}}}} INFO - "),
    "ray": _tagged(b"(worker pid=1234, ip=10.0.0.1) "),
    "grep": _tagged(b"logs/slurm-123.out:"),
    "mail-in-a-mail": lambda raw: b"Ann wrote:\n\n" + _tagged(b"> > ")(raw) + b"\nAny idea?\n",
    "drawn-box": _tagged("│ ".encode()),
    "salt": lambda raw: b"n1:\n" + _tagged(b"    ")(raw),
    "docker-file": lambda raw: b"".join(
        json.dumps({"log": line, "stream": "stdout", "time": "2026-11-22T22:20:18Z"}).encode()
        + b"\n"
        for line in raw.decode("utf-8", "replace").splitlines(keepends=True)
    ),
    "jira": lambda raw: b"h2. Result\n{code:bash}\n" + raw + b"\n{code}\nok?\n",
    "web-page": lambda raw: (
        b"<html><body><pre>"
        + html.escape(raw.decode("utf-8", "replace")).encode()
        + b"</pre></body></html>"
    ),
    "utf-16-without-mark": lambda raw: raw.decode("utf-8", "replace").encode("utf-16-be"),
    "machine-stopped": lambda raw: raw + b"\0" * 64,
    "all-at-once": lambda raw: _tagged(
        b"\x1b[33m2026-11-22T22:20:18+00:00 0: [1,0]<stdout>:\x1b[0m"
    )(raw).replace(b"\n", b"\r\n"),
}


@pytest.mark.long
@pytest.mark.parametrize("change", STRANGE)
def test_what_stands_around_the_lines_changes_nothing(change: str) -> None:
    for file, seed in RECORDED.items():
        recipe, _, raw = seed.partition(b"\n")
        found = read_output(plugins.find_plugin("recipes", recipe.decode())(), STRANGE[change](raw))
        assert [_meant(one) for one in found] == [_meant(one) for one in recorded(file)], file


@pytest.mark.long
def test_lines_without_end_that_say_nothing_are_read_in_little_time() -> None:
    for raw in (b"\n" * (1 << 24), b"n1: x\n" * 100_000 + b"x", b"{\n" * 100_000, b" " * (1 << 19)):
        read_output(plugins.find_plugin("recipes", "iperf3")(), raw)
        read_output(plugins.find_plugin("recipes", "nccl-tests")(), b"# nThread \n" + raw)


def _meant(one: OutputReading) -> tuple[Outcome, float | None, int | None]:
    return one.status, one.value, one.ranks


@pytest.mark.long
@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row[0])
def test_a_file_that_ends_early_never_gives_another_value(row: tuple) -> None:
    recipe, _, raw = RECORDED[row[0]].partition(b"\n")
    whole = {one.value for one in recorded(row[0])}
    lines = raw.splitlines(keepends=True)
    step = max(1, len(lines) // 60)
    for count in range(0, len(lines), step):
        found = read_output(
            plugins.find_plugin("recipes", recipe.decode())(), b"".join(lines[:count])
        )
        assert {one.value for one in found} <= {None, *whole}, count


MADE = [
    (recipe, output.encode(), index)
    for index, (recipe, output, status, *_) in enumerate(OTHERS)
    if status is Outcome.MEASURED
]
WHOLE = [
    *(
        ((parts := RECORDED[row[0]].partition(b"\n"))[0].decode(), parts[2], row[0])
        for row in MEASURED
    ),
    *MADE,
    ("nccl-tests", NCCL.encode(), "nccl"),
]
"""Recipe, output, and how the case is called."""


def values_of(recipe: str, raw: bytes) -> set[float]:
    found = read_output(plugins.find_plugin("recipes", recipe)(), raw)
    return {one.value for one in found if one.value is not None}


@pytest.mark.long
@pytest.mark.parametrize(
    ("recipe", "raw"), [one[:2] for one in WHOLE], ids=[str(one[2]) for one in WHOLE]
)
def test_a_file_that_ends_within_a_line_never_gives_a_part_of_a_number(
    recipe: str, raw: bytes
) -> None:
    lines = [b"", *(raw[: found.end()] for found in re.finditer(rb"\n", raw))][-12:]
    ends_of_lines = set().union(*(values_of(recipe, line) for line in (*lines, raw)))

    for end in range(max(0, len(raw) - 150), len(raw)):
        assert values_of(recipe, raw[:end]) <= ends_of_lines, raw[max(0, end - 60) : end]


@pytest.mark.parametrize(
    ("recipe", "raw"), [one[:2] for one in WHOLE], ids=[str(one[2]) for one in WHOLE]
)
def test_lines_that_stand_twice_give_the_same_value_or_none(recipe: str, raw: bytes) -> None:
    twice = b"".join(line + line for line in raw.splitlines(keepends=True))

    assert values_of(recipe, twice) <= values_of(recipe, raw)


@pytest.mark.parametrize(
    ("recipe", "raw"), [one[:2] for one in WHOLE], ids=[str(one[2]) for one in WHOLE]
)
def test_two_outputs_line_by_line_give_a_value_of_one_of_them_or_none(
    recipe: str, raw: bytes
) -> None:
    other = re.sub(rb"(\d)(\d*\.\d\d)", rb"\g<1>9\g<2>", raw)
    pairs = zip(raw.splitlines(keepends=True), other.splitlines(keepends=True), strict=True)
    mixed = b"".join(line for both in pairs for line in both)

    known = values_of(recipe, raw) | values_of(recipe, other)
    assert (
        all(
            one == pytest.approx(min(known, key=lambda value: abs(value - one)))
            for one in values_of(recipe, mixed)
        )
        if known
        else not values_of(recipe, mixed)
    )


def test_perftest_of_today_says_mebibytes() -> None:
    rows = RECORDED["write-bw-all"].partition(b"\n")[2].replace(b"[MB/sec]", b"[MiB/sec]")

    (one,) = read_output(plugins.find_plugin("recipes", "ib_write_bw")(), rows)

    assert one.value == pytest.approx(6.93 * 8 * 2**20 / 1e9)


ONE_AFTER_ANOTHER = (
    "nccl-2x1", "nccl-2x8", "gloo-2", "write-bw", "write-bw-all", "write-lat", "iperf3-tcp", "iperf3-text", "himeno-1",
    "himeno-2", "imb-pingpong", "mpi4py-busy", "sysbench-cpu", "fio-read", "fio-text",
)  # fmt: skip


@pytest.mark.parametrize("file", ONE_AFTER_ANOTHER)
def test_each_run_in_a_file_is_a_result_of_its_own(file: str) -> None:
    recipe, _, raw = RECORDED[file].partition(b"\n")
    found = read_output(plugins.find_plugin("recipes", recipe.decode())(), raw + b"\n" + raw)

    assert [_meant(one) for one in found] == 2 * [_meant(one) for one in recorded(file)]


@pytest.mark.parametrize(
    ("file", "last"),
    [
        ("nccl-2x1", b"# Avg bus"),
        ("write-bw", b"-----"),
        ("iperf3-tcp", b"}"),
        ("himeno-1", b"Loop executed"),
    ],
)
def test_a_run_that_was_cut_off_does_not_hide_behind_the_next(file: str, last: bytes) -> None:
    recipe, _, raw = RECORDED[file].partition(b"\n")
    begin = raw[: raw.rindex(last)].rstrip(b"-")
    found = read_output(plugins.find_plugin("recipes", recipe.decode())(), begin + b"\n" + raw)

    assert begin != raw
    assert any(one.status is not Outcome.MEASURED for one in found)


def test_copies_on_a_host_each_are_refused_however_their_lines_fall() -> None:
    raw = RECORDED["nccl-1x8"].partition(b"\n")[2]
    hosts = {one for reading in recorded("nccl-1x8") for one in reading.hosts}
    other = raw
    for host in hosts:
        other = other.replace(host.encode(), b"elsewhere")
    (behind,) = read_output(plugins.find_plugin("recipes", "nccl-tests")(), raw + other)
    lines = zip(raw.splitlines(keepends=True), other.splitlines(keepends=True), strict=True)
    (mixed,) = read_output(
        plugins.find_plugin("recipes", "nccl-tests")(),
        b"".join(line for both in lines for line in both),
    )

    assert (behind.status, mixed.status) == (Outcome.REFUSED, Outcome.REFUSED)
    assert "separate runs" in behind.text
