"""Outputs of other versions and options of the programs: read rightly, or not at all."""

import json
import re

import pytest

from rankdeck.acceptance.recipe import HardwareFacts
from rankdeck.acceptance.values import Outcome
from tests.support.outputs import read, recorded, values

MEASURED, FAILED, NOT_MEASURED = Outcome.MEASURED, Outcome.FAILED, Outcome.NOT_MEASURED


@pytest.mark.parametrize("number", ["{:6}\t", "{}:", "{:6}  "], ids=["cat -n", "grep -n", "nl"])
@pytest.mark.parametrize(
    ("recipe", "file"),
    [("iperf3", "iperf3-tcp"), ("iperf3", "iperf3-text"), ("nccl-tests", "nccl-2x8"), ("imb", "imb-groups-together"), ("hpcc", "hpcc")],
)  # fmt: skip
def test_the_numbers_of_lines_are_no_part_of_them(recipe: str, file: str, number: str) -> None:
    lines = recorded(file).splitlines(keepends=True)
    numbered = "".join(number.format(place) + line for place, line in enumerate(lines, 7))

    assert values(recipe, numbered) == values(recipe, recorded(file))
    assert None not in values(recipe, numbered)


# ---- nccl-tests

DEVICES = "".join(
    f"#  Rank {rank:2d} Group  0 Pid   9000 on {host} device  {rank % 2} [0000:1{rank}:00] AMD Instinct MI300X\n"
    for rank, host in enumerate(("n1", "n1", "n2", "n2"))
)
HEAD = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 2.9\n# Collective test concluded: all_reduce_perf\n"


def row(size: int, out: float, into: float, redop: str = "sum", kind: str = "float") -> str:
    return f"{size} 256 {kind} {redop} -1 100 2.00 {out} N/A 100 1.90 {into} N/A\n"


def table(*lines: str) -> str:
    return DEVICES + HEAD + "".join(lines) + FOOT


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ([row(8, 9, 9), row(64, 3.0, 2.85), row(8, 9, 9), row(64, 2.0, 1.9)], 2.85),
        ([row(64, 3.0, 2.9, "sum"), row(64, 1.2, 1.1, "prod"), row(64, 3.0, 2.9, "max")], 1.1),
        ([row(64, 3.0, 2.9, kind="int8"), row(64, 1.5, 1.6, kind="half"), row(64, 3, 3)], 1.5),
        ([row(64, 2.0, 2.9, "avg")], 2.0),
    ],
    ids=["-N: the best repeat", "-o all: the slowest operation", "-d all: the slowest type", "-o avg"],
)  # fmt: skip
def test_of_several_rows_of_the_largest_size_the_right_one_counts(
    lines: list[str], value: float
) -> None:
    assert values("nccl-tests", table(*lines)) == [value]
    rows = [
        {"size": int(words[0]), "type": words[2], "redop": words[3], "root": "-1",
         "out_of_place": {"alg_bw": 2.0, "bus_bw": float(words[7]), "nwrong": None},
         "in_place": {"alg_bw": 1.9, "bus_bw": float(words[11]), "nwrong": None}}
        for words in map(str.split, lines)
    ]  # fmt: skip
    devices = [{"rank": rank, "group": 0, "hostname": f"n{rank}"} for rank in range(4)]
    found = {
        "version": 3, "config": {"devices": devices}, "results": rows,
        "out_of_bounds": {"count": 0, "okay": "true"}, "average_bus_bandwidth": {"bandwidth": 2.9},
    }  # fmt: skip
    assert values("nccl-tests", json.dumps(found)) == [value]


def test_limits_of_all_reduce_are_not_those_of_another_test_that_says_its_name() -> None:
    devices = "".join(
        f"#  Rank  {rank} Group  0 Pid 18 on n1 device  {rank} [0000:0{rank}:00] NVIDIA H100 80GB HBM3\n"
        for rank in range(8)
    )
    told = devices + HEAD + row(64, 30, 31) + FOOT

    assert [one.grade for one in read("nccl-tests", told)] == ["slow"]
    assert [one.grade for one in read("nccl-tests", told.replace("all_reduce", "sendrecv"))] == [""]


def test_a_table_from_a_ticket_whose_number_signs_are_lost_is_read() -> None:
    (one,) = read("nccl-tests", table(row(64, 3.0, 2.85)).replace("#", ""))

    assert (one.value, one.ranks, one.hosts) == (2.85, 4, ("n1", "n2"))


def test_a_rank_that_crashes_after_the_gpus_were_found_is_a_failure_of_its_own() -> None:
    crashed = "mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 11 (Segmentation fault).\n"

    (broke,) = read("nccl-tests", DEVICES + HEAD + row(8, 3.0, 2.85) + crashed)
    (late,) = read("nccl-tests", table(row(64, 3.0, 2.85)) + crashed)

    assert (broke.status, late.status) == (FAILED, MEASURED)
    assert "node n2 exited on signal 11" in broke.text


@pytest.mark.parametrize(
    "line",
    [
        "bash: all_reduce_perf: command not found",
        "slurmstepd: error: execve(): all_reduce_perf: No such file or directory",
        "all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open",
    ],
)
def test_a_program_that_was_not_there_is_not_measured_and_its_line_is_shown(line: str) -> None:
    (one,) = read("nccl-tests", line + "\n")

    assert one.status is NOT_MEASURED
    assert line[:60] in one.text


def test_of_amd_gpus_the_links_have_their_own_name() -> None:
    devices = "".join(
        f"#  Rank  {rank} Group  0 Pid 18 on n1 device  {rank} [0000:0{rank}:00] AMD Instinct MI300X\n"
        for rank in range(8)
    )
    (one,) = read("rccl-tests", devices + HEAD + row(64, 320, 330) + FOOT)

    assert "of the 448 that one direction of xGMI carries" in one.text


# ---- perftest

BOTH = recorded("write-bw").replace("RDMA_Write BW Test", "RDMA_Write Bidirectional BW Test")
LINE = "-" * 87 + "\n"


def separate(which: str, value: float) -> str:
    head = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    return f"\n {which} results: \n{LINE}{head} 65536  5000  0.00  {value}  0.04\n{LINE}"


def test_both_directions_together_are_compared_with_twice_the_link() -> None:
    (one,) = read("ib_write_bw", BOTH.replace("23.14 ", "46.20 "))
    (slow,) = read("ib_write_bw", BOTH.replace("23.14 ", "23.14 "), HardwareFacts(link_gbps=25))

    assert "46.28 that 2 × 25 Gb/s (a guess from the value) carry at MTU 1024" in one.text
    assert (one.grade, slow.grade) == ("good", "slow")


def test_the_tables_of_each_direction_do_not_replace_that_of_both() -> None:
    told = BOTH.replace("23.14 ", "46.20 ") + separate("Local", 23.2) + separate("Remote", 23.0)

    assert values("ib_write_bw", told) == [46.2]


def test_two_ports_of_a_device_are_two_links() -> None:
    text = recorded("write-bw").replace("Dual-port       : OFF", "Dual-port       : ON")

    assert "Dual-port       : ON" in text
    assert "2 × 25 Gb/s" in read("ib_write_bw", text.replace("23.14 ", "46.20 "))[0].text


def test_a_decimal_comma_is_not_measured() -> None:
    (bandwidth,) = read("ib_write_bw", recorded("write-bw").replace("23.14 ", "23,14 "))
    himeno = recorded("himeno-1").replace("4.538793e-04", "4,538793e-04")
    (flops,) = read("himeno", himeno)

    assert (bandwidth.status, flops.status) == (NOT_MEASURED, NOT_MEASURED)
    assert "not complete" in bandwidth.text
    assert "LC_ALL=C" in flops.text


def test_a_link_of_infiniband_has_smaller_headers_than_ethernet() -> None:
    text = recorded("write-bw").replace(
        "[B]\n Link type       : Ethernet", "[B]\n Link type       : IB"
    )
    text = text.replace("Mtu             : 1024", "Mtu             : 4096").replace(
        "23.14 ", "197.22 "
    )

    assert "Link type       : IB" in text
    (one,) = read("ib_write_bw", text, HardwareFacts(link_gbps=200))
    assert (one.grade, "99.3 % of the 198.7 that a 200 Gb/s link" in one.text) == ("good", True)
    assert "MTU 9000" not in read("ib_write_bw", text.replace("4096", "2048"))[0].text


def test_an_output_of_another_program_of_perftest_is_refused() -> None:
    for recipe in ("ib_read_bw", "ib_send_bw"):
        (one,) = read(recipe, recorded("write-bw"))
        assert (one.status, one.value) == (Outcome.REFUSED, None)
        assert "the output of ib_write_bw" in one.text


def test_data_that_perftest_finds_wrong_is_a_failure() -> None:
    wrong = "VALIDATION: FAILED - 3 error(s), first at QP 0\n"

    assert read("ib_write_bw", recorded("write-bw") + wrong)[0].status is FAILED


@pytest.mark.parametrize(
    ("file", "given", "right"),
    [
        ("imb-pingpong", "osu", "imb"),
        ("osu-bw", "imb", "osu"),
        ("write-bw", "nccl-tests", "ib_write_bw"),
        ("nccl-2x1", "ib_write_bw", "nccl-tests"),
        ("iperf3-tcp", "fio", "iperf3"),
        ("fio-read", "iperf3", "fio"),
        ("sysbench-cpu", "stream", "sysbench"),
    ],
)
def test_an_output_given_to_the_wrong_recipe_names_the_right_one(
    file: str, given: str, right: str
) -> None:
    (one,) = read(given, recorded(file))

    assert (one.status, one.value) == (NOT_MEASURED, None)
    assert f"`--read {right}` finds a result in it" in one.text


# ---- iperf3

BIDIR = """Connecting to host 10.0.0.2, port 5201
[ ID][Role] Interval           Transfer     Bitrate         Retr
[  5][TX-C]   0.00-1.00   sec  1.00 GBytes  8.60 Gbits/sec    0             sender
[  5][TX-C]   0.00-1.01   sec  1.00 GBytes  8.50 Gbits/sec                  receiver
[  7][RX-C]   0.00-1.00   sec   500 MBytes  4.20 Gbits/sec    0             sender
[  7][RX-C]   0.00-1.01   sec   499 MBytes  4.10 Gbits/sec                  receiver

iperf Done.
"""


def test_the_text_of_iperf3_in_both_directions_is_two_results() -> None:
    assert values("iperf3", BIDIR) == [8.5, 4.1]
    assert values("iperf3", BIDIR.replace("[  5]", "[SUM]").replace("[  7]", "[SUM]")) == [8.5, 4.1]
    assert "the other direction" in read("iperf3", BIDIR)[1].text


def test_bytes_of_iperf3_are_counted_in_powers_of_two() -> None:
    text = BIDIR.replace("8.50 Gbits/sec", "112 MBytes/sec")

    assert values("iperf3", text)[0] == pytest.approx(112 * 2**20 * 8 / 1e9)


def streams(version: str, percent: float, **asked: object) -> str:
    found = json.loads(recorded("iperf3-tcp"))
    found["start"]["version"] = f"iperf {version}"
    found["start"]["test_start"] |= asked
    found["end"]["cpu_utilization_percent"] |= {"host_total": percent, "remote_total": 1.0}
    return json.dumps(found)


@pytest.mark.parametrize(
    ("version", "percent", "asked", "status"),
    [
        ("3.12", 97.0, {"num_streams": 4}, NOT_MEASURED),
        ("3.17.1", 240.0, {"num_streams": 4}, MEASURED),
        ("3.17.1", 390.0, {"num_streams": 4}, NOT_MEASURED),
        ("3.16", 120.0, {"num_streams": 1, "bidir": 1}, MEASURED),
        ("3.16", 97.0, {"num_streams": 1}, NOT_MEASURED),
    ],
)
def test_from_3_16_on_each_stream_of_iperf3_has_a_core(
    version: str, percent: float, asked: dict[str, int], status: Outcome
) -> None:
    assert read("iperf3", streams(version, percent, **asked))[0].status is status


def test_the_events_of_json_stream_are_read_run_by_run() -> None:
    found = json.loads(recorded("iperf3-tcp"))
    events = [{"event": "start", "data": found["start"]}]
    events += [{"event": "interval", "data": one} for one in found["intervals"]]
    cut = "".join(json.dumps(one) + "\n" for one in events)
    whole = cut + json.dumps({"event": "end", "data": found["end"]}) + "\n"
    broken = cut + json.dumps({"event": "error", "data": "unable to write: reset by peer"}) + "\n"

    assert values("iperf3", whole + whole) == 2 * [pytest.approx(9.8217433)]
    assert [one.status for one in read("iperf3", cut + whole)] == [NOT_MEASURED, MEASURED]
    assert read("iperf3", broken)[0].status is FAILED


def test_a_limit_and_losses_of_udp_are_said() -> None:
    found = json.loads(streams("3.12", 5.0, target_bitrate=200_000_000))
    found["end"]["sum_received"]["lost_percent"] = 6.487
    (one,) = read("iperf3", json.dumps(found))

    assert "6.49 % lost, -b allowed 0.2 Gb/s a stream" in one.text


@pytest.mark.parametrize(
    ("rows", "status", "said"),
    [
        ("[  5]   0.00-1.00   sec  1.78 GBytes  15.3 Gbits/sec\n", FAILED, "it broke after traffic began"),
        ("", NOT_MEASURED, "it never began"),
    ],
)  # fmt: skip
def test_a_server_of_iperf3_that_was_killed_broke_the_run_if_traffic_had_begun(
    rows: str, status: Outcome, said: str
) -> None:
    """Real lines of 3.12 with `-R`."""
    text = (
        "Connecting to host 127.0.0.1, port 5377\nReverse mode, remote host 127.0.0.1 is sending\n"
        "[  5] local 127.0.0.1 port 47676 connected to 127.0.0.1 port 5377\n"
        f"[ ID] Interval           Transfer     Bitrate\n{rows}"
        "iperf3: error - control socket has closed unexpectedly\n"
    )
    (one,) = read("iperf3", text)

    assert one.status is status
    assert one.text == f"{said}: `control socket has closed unexpectedly`"


def test_the_output_of_a_server_of_iperf3_is_called_so() -> None:
    text = (
        "Server listening on 5201\n[  5]   0.00-2.00   sec  2.29 GBytes  9.82 Gbits/sec  receiver\n"
    )

    assert "the server's output" in read("iperf3", text)[0].text


def test_one_of_several_streams_of_iperf3_is_not_taken_for_their_sum() -> None:
    """Real lines of 3.9 with `-P 2`, of which the last was lost."""
    head = "Connecting to host n2, port 5201\n[ ID] Interval           Transfer     Bitrate         Retr\n"
    streams = "".join(
        f"[{number:3}]   0.00-1.01   sec  46.0 MBytes   382 Mbits/sec                  receiver\n"
        for number in (5, 7)
    )
    total = "[SUM]   0.00-1.01   sec  92.0 MBytes   764 Mbits/sec                  receiver\n"
    (one,) = read("iperf3", f"{head}{streams}\niperf Done.\n")

    assert (one.status, one.value) == (NOT_MEASURED, None)
    assert "the sum of all streams" in one.text
    assert values("iperf3", f"{head}{streams}{total}\niperf Done.\n") == [pytest.approx(0.764)]


@pytest.mark.parametrize(
    ("output", "status", "said"),
    [
        ("ping data: rdma-ping-4: EFGH\nping data: rdma-ping-5: FGHI\n", NOT_MEASURED, "ping 0 is missing"),
        ("server ping data: rdma-ping-0: ABCD\n", NOT_MEASURED, "this is the server's output"),
        ("cma event RDMA_CM_EVENT_UNREACHABLE, error -110\nwait for CONNECTED state 4\nconnect error -1\n", NOT_MEASURED, "EVENT_UNREACHABLE"),
        ("getaddrinfo failed (Name or service not known) - invalid hostname or IP address\n", NOT_MEASURED, "Name or service not known"),
    ],
)  # fmt: skip
def test_what_rping_says_without_v_and_d_is_understood(
    output: str, status: Outcome, said: str
) -> None:
    (one,) = read("rping", output)

    assert (one.status, one.value) == (status, None)
    assert said in one.text


# ---- MPI

SENDRECV = """# Benchmarking Sendrecv
# #processes = {ranks}
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]   Mbytes/sec
            0         1000         0.60         0.60         0.60         0.00
      4194304           10       600.00       700.00       650.00     {value}

"""
IMB = recorded("imb-pingpong")
END = "# All processes entering MPI_Finalize"


def test_each_benchmark_and_number_of_ranks_of_imb_is_a_result() -> None:
    more = SENDRECV.format(ranks=2, value=11983.73) + SENDRECV.format(ranks=4, value=4934.48)
    found = read("imb", IMB.replace(END, more + END))

    assert [(one.value, one.ranks) for one in found] == [(676.41, 2), (11983.73, 2), (4934.48, 4)]
    assert "11984 MB/s at 4 MiB (Sendrecv of 2 ranks)" in found[1].text
    assert {one.status for one in read("imb", IMB.replace(END, more))} == {NOT_MEASURED}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: re.sub(r" +4194304 .*\n", "", text), "it ends at 2097152 bytes of 4194304"),
        (lambda text: text.replace(" 676.41", " 12.0 676.41"), "the last row is not complete"),
        (lambda text: re.sub(r"( +4194304) .*", r"\1 out-of-mem.; needed X=   1.0 GB", text), "no memory for 4194304 bytes"),
    ],
)  # fmt: skip
def test_a_table_of_imb_that_lacks_its_last_row_is_not_measured(change, said: str) -> None:
    (one,) = read("imb", change(IMB))

    assert (one.status, one.value) == (NOT_MEASURED, None)
    assert said in one.text


def test_a_defect_in_any_row_of_imb_is_a_wrong_value() -> None:
    rows = SENDRECV.replace("Mbytes/sec", "Mbytes/sec      defects").replace(
        "0.00\n", "0.00  {bad}\n"
    )
    rows = rows.replace("{value}", "{value}  0.00") + END

    assert values("imb", rows.format(ranks=2, value=900.5, bad="0.00")) == [900.5]
    (one,) = read("imb", rows.format(ranks=2, value=900.5, bad="3.00"))
    assert (one.status, one.text) == (FAILED, "wrong values at 0 bytes")


KILLED = "prterun noticed that process rank 1 with PID 7 on node n2 exited on signal 9 (Killed).\n"


@pytest.mark.parametrize("recipe", ["imb", "mpi4py.bench", "osu"])
def test_a_rank_that_is_killed_between_two_rows_leaves_no_value(recipe: str) -> None:
    osu = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n1 1.2\n2 2.4\n4 4.8\n"
    text = {"imb": IMB, "mpi4py.bench": recorded("mpi4py-busy"), "osu": osu}[recipe]
    begin = text.splitlines(keepends=True)
    (one,) = read(recipe, "".join(begin[: len(begin) - 1]).replace(END, "") + KILLED)

    assert (one.status, one.value) == (FAILED, None)
    assert "rank 1" in one.text


@pytest.mark.parametrize(
    "sign", ["+/-", "?", "Â±", "\xb1".encode("latin-1").decode("utf-8", "replace")]
)
def test_the_sign_between_mean_and_spread_may_be_lost(sign: str) -> None:
    ping = recorded("mpi4py-busy")

    assert "±" in ping
    assert values("mpi4py.bench", ping.replace("±", sign)) == [546.3]


def test_what_another_rank_says_after_the_table_is_no_row_of_it() -> None:
    ping = recorded("mpi4py-busy") + "Hello, World! I am process 1 of 2 on n2.\n"
    both = "Hello, World! I am process 0 of 2 on n1.\n" + ping

    assert values("mpi4py.bench", both) == [546.3]


# ---- single nodes

OLD_STRESS = """stress-ng: info:  [123] dispatching hogs: 8 cpu, 2 vm
stress-ng: info:  [123] successful run completed in 10.01s
stress-ng: info:  [123] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s
stress-ng: info:  [123] cpu               12345     10.00     79.90      0.01      1234.50        154.48
stress-ng: info:  [123] vm               912345     10.00      9.90      0.91     91234.50       4604.48
"""


def test_each_stressor_of_an_older_stress_ng_is_a_result() -> None:
    cpu, memory = read("stress-ng", OLD_STRESS)

    assert (cpu.value, cpu.text[:22]) == (1234.5, "1234 bogo-ops/s (cpu):")
    assert (memory.status, memory.text) == (
        NOT_MEASURED,
        "the node was busy, or its stressors shared cores: only 54 % of the CPU was ours",
    )


BRIEF_STRESS = """setting to a 2 second run per stressor
dispatching hogs: 2 cpu
stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s CPU used per       RSS Max
                          (secs)    (secs)    (secs)   (real time) (usr+sys time) instance (%)          (KB)
cpu                 663      2.03      4.01      0.01       327.23        1161.91        99.08          6640
successful run completed in 2.06s
"""


def test_stress_ng_without_its_name_before_the_lines_is_read() -> None:
    """With `--log-brief`, 0.15.06; and a line about a file does not say that it did not run."""
    assert values("stress-ng", BRIEF_STRESS) == [327.23]
    module = "uprobe: cannot set uprobe_event: errno=2 (No such file or directory)\n"
    (busy,) = read("stress-ng", module + BRIEF_STRESS.replace("4.01", "0.56"))
    assert busy.text == "the node was busy: only 14 % of the CPU was ours"


SYSBENCH_0_5 = """sysbench 0.5:  multi-threaded system evaluation benchmark

Prime numbers limit: 10000

General statistics:
    total time:                          9.1200s
    total number of events:              10000
    total time taken by event execution: 9.1161s
    response time:
         avg:                                  0.91ms

Threads fairness:
    execution time (avg/stddev):   9.1161/0.00
"""


@pytest.mark.parametrize(
    ("output", "value", "unit"),
    [
        (SYSBENCH_0_5, 10000 / 9.12, "events/s"),
        (SYSBENCH_0_5.replace("Prime numbers limit", "Maximum prime number checked in CPU test").replace("sysbench 0.5", "sysbench v0.4.12"), 10000 / 9.12, "events/s"),
        (SYSBENCH_0_5.replace("General", "Throughput:\n    events/s (eps):                      944.0312\n\nGeneral"), 944.0312, "events/s"),
        (SYSBENCH_0_5.replace("Prime numbers limit: 10000", "102400.00 MB transferred (4180.44 MB/sec)"), 4180.44, "MiB/s"),
        (SYSBENCH_0_5.replace("Prime numbers limit: 10000", "1024.00 MiB transferred (4180.44 MiB/sec)\n    events/s (eps): 7.5"), 4180.44, "MiB/s"),
        (SYSBENCH_0_5.replace("Prime numbers limit: 10000", "Doing thread subsystem test"), None, ""),
    ],
    ids=["0.5", "0.4", "1.1", "memory 0.4", "memory 1.1", "threads"],
)  # fmt: skip
def test_every_version_of_sysbench_is_read(output: str, value: float | None, unit: str) -> None:
    (one,) = read("sysbench", output)

    assert (one.value, one.unit) == (value if value is None else pytest.approx(value), unit)
    assert value is not None or "only `cpu` and `memory` are read" in one.text


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("   READ: bw=4793Mbit/s (4571Mibit/s), 4793Mbit/s-4793Mbit/s, io=8389kB, run=14-14msec", 4571 * 2**20 / 8e6),
        ("   READ: io=8192.0KB, aggrb=292571KB/s, minb=292571KB/s, maxb=292571KB/s, mint=28msec", 292571 * 1024 / 1e6),
        ("  WRITE: bw=1.5GiB/s (1.61GB/s), 1.5GiB/s-1.5GiB/s, io=8MiB, run=14-14msec", 1610.0),
    ],
)  # fmt: skip
def test_every_unit_of_fio_is_read(line: str, value: float) -> None:
    text = f"fio-3.33\na: (groupid=0, jobs=1): err= 0: pid=1\n\nRun status group 0 (all jobs):\n{line}\n"

    assert values("fio", text) == [pytest.approx(value)]


def test_what_dcgmi_says_of_a_test_is_no_outcome_of_another() -> None:
    """The rows below a test say why: real words of DCGM 3."""
    head = "Successfully ran diagnostic for group.\n+---+---+\n| Diagnostic | Result |\n"
    rows = "| Memory | Pass - All |\n| Info | GPU 0 did not fail |\n| Warning | All GPUs pass 1 |\n+---+---+\n"

    assert values("dcgmi", head + rows) == [1.0]


def test_the_text_of_fio_is_read_and_its_error_is_a_failure() -> None:
    assert values("fio", recorded("fio-text").replace("err= 0", "err= 5 (func=read)")) == [None]
    assert read("fio", recorded("fio-text").replace("err= 0", "err= 5"))[0].status is FAILED


def test_why_dcgmi_ran_nothing_is_said_and_which_test_failed_on_a_gpu() -> None:
    said = {"DCGM Diagnostic": {"runtime_error": "Host engine connection invalid/disconnected."}}
    rows = "| memory | Fail |\n|        | GPU0: Pass |\n|        | GPU1: Fail |\n"

    assert "Host engine connection invalid" in read("dcgmi", json.dumps(said))[0].text
    assert read("dcgmi", rows)[0].text == "failed: memory (GPU 1)"


def test_hpcc_that_says_no_success_is_quoted() -> None:
    (one,) = read("hpcc", recorded("hpcc").replace("Success=1", "Success=0"))

    assert (one.status, "`Success=0`" in one.text) == (FAILED, True)


# ---- what went wrong before there was a result, and who says so

NCCL = table(row(64, 3.0, 2.85))
BEGUN = DEVICES + HEAD
TIME_LIMIT = (
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T00:00:00 DUE TO TIME LIMIT ***\n"
)
OSU_BEGUN = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n1 1.2\n2 2.4\n4 4.8\n"


@pytest.mark.parametrize(
    ("recipe", "output", "status", "words"),
    [
        ("nccl-tests", BEGUN + TIME_LIMIT, NOT_MEASURED, "it was stopped: `slurmstepd"),
        ("osu", OSU_BEGUN + TIME_LIMIT, NOT_MEASURED, "it was stopped: `slurmstepd"),
        ("osu", OSU_BEGUN + "srun: error: n1: task 0: Exited with exit code 1\n", FAILED, "n1: task 0"),
        ("nccl-tests", BEGUN + "srun: error: Node failure on n2\n" + TIME_LIMIT, FAILED, "Node failure on n2"),
        ("nccl-tests", BEGUN + "srun: error: n2: tasks 2-3: Killed\n", FAILED, "n2: tasks 2-3"),
        ("stream", "srun: error: n2: task 0: Segmentation fault (core dumped)\n", FAILED, "n2: task 0"),
        ("nccl-tests", "There are not enough slots available in the system\n", NOT_MEASURED, "not enough slots"),
        ("nccl-tests", "ssh: connect to host n2 port 22: Connection refused\n", NOT_MEASURED, "host n2 port 22"),
        ("nccl-tests", "a: libc.so.6: version `GLIBC_2.34' not found (required by a)\n", NOT_MEASURED, "did not run"),
        ("ib_write_bw", "Couldn't allocate MR\n", NOT_MEASURED, "Couldn't allocate MR"),
        ("ib_write_bw", " Port number 1 state is Down\n", NOT_MEASURED, "state is Down"),
        ("ib_write_bw", "* Waiting for client to connect... *\n", NOT_MEASURED, "no client came"),
        ("ib_write_bw", " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n", FAILED, "did not answer"),
        ("iperf3", "Client connecting to 10.0.0.2, TCP port 5001\n", NOT_MEASURED, "iperf 2"),
        ("stream", b"\x1f\x8b\x08\0\0", NOT_MEASURED, "unpack it first"),
    ],
)  # fmt: skip
def test_the_line_that_says_why_there_is_no_result_is_quoted(
    recipe: str, output: str | bytes, status: Outcome, words: str
) -> None:
    (one,) = read(recipe, output)

    assert (one.status, one.value) == (status, None)
    assert words in one.text


def test_a_result_that_is_whole_does_not_become_less_by_what_came_after_it() -> None:
    (one,) = read("nccl-tests", NCCL + "srun: error: n2: task 3: Segmentation fault\n" + TIME_LIMIT)

    assert (one.status, one.value) == (MEASURED, 2.85)


@pytest.mark.parametrize("mark", [">", "> ", "| ", "> > ", "Ann> "])
def test_a_table_in_a_mail_is_read(mark: str) -> None:
    (one,) = read("nccl-tests", "".join(mark + line for line in NCCL.splitlines(keepends=True)))

    assert (one.status, one.value) == (MEASURED, 2.85)


# ---- what several nodes said, each for itself

STREAM = (
    "STREAM version $Revision: 5.10 $\nFunction    Best Rate MB/s  Avg time     Min time     Max time\n"
    "Copy:  {rate}  0.1 0.1 0.1\n\nTriad:           {rate}     0.1  0.1  0.1\n"
    "Solution Validates: avg error less than 1.000000e-13 on all three arrays\n"
)
MISSING = "bash: line 1: stream_c.exe: command not found\n"
SAID = {"n1": STREAM.format(rate="215500.1"), "n2": STREAM.format(rate="98000.1"), "n3": MISSING}


def _tagged(tag: str) -> str:
    """The lines of all nodes in turn, each behind the tag of its node."""
    lines = {who: said.splitlines(keepends=True) for who, said in SAID.items()}
    longest = max(map(len, lines.values()))
    return "".join(
        tag.format(who=who, task=who[1:]) + own[number]
        for number in range(longest)
        for who, own in lines.items()
        if number < len(own)
    )


@pytest.mark.parametrize(
    "output",
    [
        _tagged("{who}: "),
        _tagged("{task}: "),
        _tagged("[1,{task}]<stdout>: "),
        _tagged("[pod/{who}/main] "),
        _tagged("stream-{task}-x7 main "),
        "+ stream-1-x7 › main\n" + _tagged("stream-{task}-x7 main "),
        _tagged("2026-11-22T22:20:18.123Z {who}: "),
        _tagged("Nov 22 22:20:18 {who} bash[4711]: "),
        "".join(f"----------------\n{who}\n----------------\n{said}" for who, said in SAID.items()),
        "".join(f"---------------\n{who} (1)\n---------------\n{said}" for who, said in SAID.items()),
        "".join(f"{who} | CHANGED | rc=0 >>\n{said}" for who, said in SAID.items()),
    ],
    ids=["pdsh", "srun -l", "mpirun", "kubectl", "stern", "stern's own lines", "time and pdsh", "journal", "dshbak", "clush -b", "ansible"],
)  # fmt: skip
def test_each_node_that_ran_a_program_for_itself_has_its_own_result(output: str) -> None:
    fast, slow, missing = read("stream", output)

    assert (fast.value, slow.value, missing.status) == (215500.1, 98000.1, NOT_MEASURED)
    assert [re.sub(r"\D", "", one.hosts[0])[:1] for one in (fast, slow, missing)] == ["1", "2", "3"]
    assert fast.text.startswith(f"{fast.hosts[0]}: 215500 MB/s")
    assert "command not found" in missing.text


def test_numbers_before_the_lines_are_not_taken_for_the_first_column() -> None:
    lines = recorded("mpi4py-busy").splitlines(keepends=True)
    blanks = "".join(f"{number:6} {line}" for number, line in enumerate(lines, 1))

    assert values("mpi4py.bench", blanks) == [None]
    tabs = "".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))
    assert values("mpi4py.bench", tabs) == [546.3]


def test_a_header_with_something_glued_to_it_does_not_make_times_of_speeds() -> None:
    (one,) = read("imb", IMB.replace("Mbytes/sec\n", "Mbytes/sec|\n"))

    assert (one.status, one.value) == (NOT_MEASURED, None)


# ---- OSU, IMB, GPUs


def test_a_table_of_osu_that_ends_early_may_have_been_cut() -> None:
    (early,) = read("osu", OSU_BEGUN)
    (later,) = read("osu", OSU_BEGUN + "2097152 8000.5\n")
    (asked,) = read("osu", OSU_BEGUN.replace("1 1.2\n2 2.4\n", ""))

    assert (early.status, early.value) == (NOT_MEASURED, None)
    assert "the table ends at 4 B" in early.text
    assert "the table ends at 2 MiB" in later.text, (
        "that of a collective ends at 1 MiB, not this one"
    )
    assert asked.value == 4.8


@pytest.mark.parametrize(
    ("said", "cited"),
    [
        ("Invalid option [-c]\n\nUsage: osu_barrier [options]\n", "it did not run: `Invalid option [-c]`"),
        ("Option Missing Required Argument [-u]\n\n", "it did not run: `Option Missing"),
        ("No executable was specified on the mpirun command line.\n\nAborting.\n", "`No executable"),
    ],
)  # fmt: skip
def test_why_a_program_of_mpi_did_not_run_is_said_by_its_own_line(said: str, cited: str) -> None:
    after = "Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n"

    assert cited in read("osu", said + after)[0].text


@pytest.mark.parametrize(
    "title",
    [
        "# OSU MPI All-to-All Personalized Exchange Latency Test v5.6.3",
        "# OSU MPI Non-blocking Allgather Latency Test v7.4",
        "# OSU MPI Reduce_scatter Latency Test v5.9",
    ],
)
def test_a_collective_of_osu_on_very_many_ranks_ends_where_memory_does(title: str) -> None:
    rows = "".join(f"{1 << power:<10}{10.5 * 2**power:>20.2f}\n" for power in range(17))

    (found,) = read("osu", f"{title}\n# Size       Avg Latency(us)\n{rows}")
    (few,) = read("osu", f"{title}\n# Size       Avg Latency(us)\n1   0.52\n128   0.66\n")
    assert few.status is NOT_MEASURED, "no cluster has so many ranks"

    assert (found.status, found.size) == (MEASURED, 1 << 16), found


def test_the_sum_of_many_pairs_is_called_so() -> None:
    """Of osu_mbw_mr 5.3 with 4 ranks."""
    head = "# OSU MPI Multiple Bandwidth / Message Rate Test v5.3\n# [ pairs: 2 ] [ window size: 64 ]\n"
    rows = "# Size                  MB/s        Messages/s\n2097152  2097.58  1000.21\n4194304  1936.00  461.58\n"
    (one,) = read("osu", head + rows)

    assert (one.value, one.ranks) == (1936.0, 4)
    assert "2 pairs together" in one.text


def test_tables_without_sizes_and_without_number_signs_are_read() -> None:
    head = "OSU MPI Bandwidth Test v5.0\nSize       Bandwidth (MB/s)\n1 1.2\n4194304  12000.5\n"
    barrier = "# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)\n             12.34\n"
    full = "# Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n  12.34  10.01  14.56  1000\n"
    other = "# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n1048576  46.72  24.67  23.24  5.15\n"
    imb = IMB.partition("       #bytes")[0] + " #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n 1000  1.02  1.03  1.02\n"  # fmt: skip

    assert [values("osu", one) for one in (head, barrier, full, other)] == [[12000.5], [12.34], [14.56], [46.72]]  # fmt: skip
    assert values("imb", imb.format(ranks=2) + END) == [1.03]


@pytest.mark.parametrize(
    ("gpu", "limited"),
    [
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA H200", True),
        ("NVIDIA GH200 480GB", False),
        ("NVIDIA GB200", False),
        ("NVIDIA H100 PCIe", False),
        ("NVIDIA A100-PCIE-40GB", False),
        ("NVIDIA H200 NVL", False),
    ],
)
def test_limits_of_a_gpu_are_not_those_of_another_card_of_its_generation(
    gpu: str, limited: bool
) -> None:
    devices = "".join(
        f"#  Rank  {rank} Group  0 Pid 18 on n{rank // 8} device  {rank % 8} [0x1{rank}] {gpu}\n"
        for rank in range(16)
    )
    (one,) = read("nccl-tests", devices + HEAD + row(64, 30, 31) + FOOT)

    assert (one.grade == "slow") is limited


# ---- iperf3 over a path that loses what is large

NOTHING_CAME = {
    "intervals": [{"sum": {"bytes": 87040}}],
    "end": {"sum_received": {"bits_per_second": 0}},
}


@pytest.mark.parametrize(
    "output", [json.dumps(NOTHING_CAME), BIDIR.replace("8.50 Gbits", "0.00 bits")]
)
def test_a_connection_over_which_nothing_arrives_is_a_failure(output: str) -> None:
    one = read("iperf3", output)[0]

    assert (one.status, one.value) == (FAILED, None)
    assert "compare the MTU of both ends" in one.text


def test_losses_stand_behind_the_value_of_udp_in_its_text_too() -> None:
    line = "[  5]   0.00-10.04  sec  1.25 MBytes  1.05 Mbits/sec  0.012 ms  90/906 (9.9%)  receiver"
    (one,) = read("iperf3", f"Connecting to host n2, port 5201\n{line}\n\niperf Done.\n")

    assert "(9.9 % lost)" in one.text


# ---- programs that say why they did not run, or were ended: real words of
# iperf3 3.12, stress-ng 0.15 and sysbench 1.0


@pytest.mark.parametrize(
    ("recipe", "output", "said"),
    [
        ("iperf3", "iperf3: invalid option -- 'Q'\nUsage: iperf3 [-s|-c host] [options]\n", "iperf3: invalid option -- 'Q'"),
        ("iperf3", "iperf3: parameter error - socket buffer size too large (maximum = 536870912 bytes)\n", "socket buffer size too large"),
        ("stress-ng", "stress-ng: unrecognized option '--nosuch'\nTry 'stress-ng --help'\n", "unrecognized option '--nosuch'"),
        ("stress-ng", "cpu-method must be one of: all ackermann apery\n", "cpu-method must be one of: all"),
        ("sysbench", "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n\ninvalid option: --nosuch\n", "invalid option: --nosuch"),
    ],
)  # fmt: skip
def test_a_program_that_was_called_wrongly_did_not_run(recipe: str, output: str, said: str) -> None:
    (one,) = read(recipe, output)

    assert (one.status, one.value) == (NOT_MEASURED, None)
    assert one.text.startswith("it did not run: `")
    assert said in one.text


def test_a_text_of_iperf3_that_was_interrupted_was_cut_off() -> None:
    """`timeout -s INT` ends the client: it still writes its last lines, and 0 for the receiver."""
    lines = (
        "[ ID] Interval           Transfer     Bitrate         Retr\n"
        "[  5]   0.00-1.99   sec  2.08 GBytes  8.99 Gbits/sec   16             sender\n"
        "[  5]   0.00-1.99   sec  0.00 Bytes  0.00 bits/sec                  receiver\n"
    )
    (one,) = read("iperf3", lines)

    assert (one.status, one.text) == (NOT_MEASURED, "the run was cut off: `iperf Done.` is missing")


def test_of_a_suite_that_names_no_tests_only_all_reduce_is_read() -> None:
    head = "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20\n# Using devices\n#  Rank  0 Pid 1 on n1 device  0 [0x1] A100\n#  Rank  1 Pid 2 on n1 device  1 [0x2] A100\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    foot = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n"
    row = "        1024           {}     float     {}      {}     10.0  200.00  {}      0     10.0  200.00  {}      0\n"
    runs = [
        row.format(256, "sum", -1, 210, 220),
        row.format(256, "none", 0, 70, 71),
        row.format(128, "none", -1, 90, 91),
    ]
    text = "".join(head + one + foot for one in runs)

    assert values("nccl-tests", text) == [210]
    assert len(values("nccl-broadcast", text)) == 3
