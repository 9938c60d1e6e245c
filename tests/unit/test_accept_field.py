"""Outputs as the field has them: other layouts, reports on the way,
and texts that only speak of a result.
"""

import json
import quopri
import re

import pytest

from rankdeck.acceptance.values import Outcome
from tests.support.outputs import read, recorded, said, values

MEASURED, FAILED, NOT_MEASURED, REFUSED = Outcome.MEASURED, Outcome.FAILED, Outcome.NOT_MEASURED, Outcome.REFUSED  # fmt: skip

# ---- nccl-tests


def devices(hosts: int, each: int) -> str:
    return "".join(
        f"#   Rank {rank:2d} Pid {700 + rank} on n{rank // each} device {rank % each:2d} [0x0{rank % each}] A100-SXM4-40GB\n"
        for rank in range(hosts * each)
    )


SIDES = "time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 20.5\n"
NEW = f"# size count type redop root {SIDES}\n"


def table(head: str, row: str, hosts: int = 1, each: int = 8) -> str:
    return f"# nThread 1 nGpus 1\n{devices(hosts, each)}#\n{head}{row}\n{FOOT}"


def test_a_row_whose_operation_is_blank_is_read_by_its_header() -> None:
    head = f"# size count type redop {SIDES}\n"
    row = "  4096  128  float         86.75  0.05  0.04  N/A  86.68  0.06  0.05  N/A"

    assert values("nccl-alltoall", table(head, row)) == [0.04]
    assert values("nccl-alltoall", table(head, row.removesuffix("N/A"))) == [None]
    assert values("nccl-tests", table(head, row.replace("float ", "float  sum "))) == [0.04]


@pytest.mark.parametrize(
    ("row", "grade"),
    [
        ("4096 1024 float sum -1 9 3 30.0 0 9 3 31.0 0", "slow"),
        ("4096 1024 float none -1 9 3 30.0 0 9 3 31.0 0", ""),
        ("4096 1024 float sum 0 9 3 30.0 0 9 3 31.0 0", ""),
        ("4096 128 float sum -1 9 3 30.0 0 9 3 31.0 0", ""),
        ("4096 2048 bfloat16 sum -1 9 3 30.0 0 9 3 31.0 0", "slow"),
    ],
    ids=["all_reduce", "all_gather", "reduce", "reduce_scatter", "of two bytes"],
)
def test_limits_of_all_reduce_are_used_where_a_row_looks_like_one(row: str, grade: str) -> None:
    assert [one.grade for one in read("nccl-tests", table(NEW, row))] == [grade]


def test_limits_of_nodes_of_eight_gpus_are_not_used_for_nodes_of_four() -> None:
    row = "4096 1024 float sum -1 9 3 30.0 0 9 3 31.0 0"

    assert [one.grade for one in read("nccl-tests", table(NEW, row, hosts=4, each=4))] == [""]
    assert [one.grade for one in read("nccl-tests", table(NEW, row, hosts=2))] == ["slow"]


def test_a_report_that_speaks_of_failures_has_not_failed() -> None:
    notes = 'The hypercube test printed `Out of bounds values : 16 FAILED`.\nTwo "Test failure" lines are its.\n'
    whole = table(NEW, "4096 1024 float sum -1 9 3 30.0 0 9 3 31.0 0")

    assert [one.status for one in read("nccl-tests", notes)] == [NOT_MEASURED]
    assert values("nccl-tests", notes + whole) == [30.0]
    assert values("nccl-tests", whole.replace("0 OK", "16 FAILED")) == [None]
    for line in ("n1: Test NCCL failure a.cu:7 'x'", " .. n1 pid 7: Test failure a.cu:7"):
        (one,) = read("nccl-tests", whole + line + "\n")
        assert (one.status, line.strip() in one.text) == (FAILED, True)


ROW = "4096 1024 float sum -1 9 3 30.0 0 9 3 31.0 0"


def test_the_layout_of_2017_is_read() -> None:
    head = "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n"
    row = "     4096          1024   float     sum    0.153   2.00   3.70    2e-07    0.151   2.10   3.90    2e-07"
    old = (
        re.sub(r"Pid \d+ ", "", table(head, row))
        .replace("# nThread", "nThread")
        .replace("# Out", " Out")
        .replace("# Avg", " Avg")
    )

    assert [(one.value, one.ranks, one.hosts) for one in read("nccl-tests", old)] == [
        (3.7, 8, ("n0",))
    ]
    assert values("nccl-tests", old + old) == [3.7, 3.7]


@pytest.mark.parametrize("tag", ["[0]", "[1,0]<stdout>:"])
def test_a_launcher_that_tags_each_piece_of_a_row_hides_nothing(tag: str) -> None:
    pieces = ROW.replace("-1 ", f"-1{tag} ").replace("0 9 3 31", f"0{tag} 9 3 31")
    text = "".join(f"{tag} {line}\n" for line in table(NEW, pieces).splitlines())
    wrong = text.replace(f"0{tag} 9 3 31", f"5{tag} 9 3 31")

    assert [(one.value, one.grade) for one in read("nccl-tests", text)] == [(30.0, "slow")]
    assert [one.status for one in read("nccl-tests", wrong)] == [FAILED]


def test_runs_of_other_pairs_in_a_file_are_a_result_each() -> None:
    first, second = table(NEW, ROW, hosts=2), table(NEW, ROW.replace("30.0", "20.0"), hosts=2)
    alone = table(NEW, ROW).replace(" on n", " on m")

    assert values("nccl-tests", first + second.replace(" on n", " on m")) == [30.0, 20.0]
    assert [one.status for one in read("nccl-tests", table(NEW, ROW) + alone)] == [REFUSED]


@pytest.mark.parametrize("tag", ["{}: ", "[pod/{}/main] ", "Nov 25 07:15:02 {} run[7]: "])
def test_a_test_that_each_node_ran_for_itself_is_a_result_each(tag: str) -> None:
    runs = [table(NEW, ROW), table(NEW, ROW.replace("30.0", "20.0")).replace(" on n0", " on n1")]
    lines = [
        [tag.format(f"n{place}") + line for line in run.splitlines()]
        for place, run in enumerate(runs)
    ]
    mixed = "\n".join(line for both in zip(*lines, strict=True) for line in both) + "\n"

    assert [(one.value, one.hosts) for one in read("nccl-tests", mixed)] == [
        (30.0, ("n0",)),
        (20.0, ("n1",)),
    ]
    assert [one.status for one in read("nccl-tests", mixed.replace(" on n1", " on n7"))] == [
        REFUSED
    ], "another host"


@pytest.mark.parametrize("tag", ["{}: ", "[1,{}]<stdout>:"])
def test_copies_that_a_launcher_numbers_are_refused(tag: str) -> None:
    runs = [table(NEW, ROW), table(NEW, ROW).replace(" on n0", " on n1")]
    lines = [
        [tag.format(place) + line for line in run.splitlines()] for place, run in enumerate(runs)
    ]

    told = "\n".join(line for both in zip(*lines, strict=True) for line in both) + "\n"
    assert [one.status for one in read("nccl-tests", told)] == [REFUSED]


def test_a_recipe_of_one_collective_reads_no_other_that_says_its_name() -> None:
    gather, reduce = (
        f"# Collective test starting: {name}\n{table(NEW, ROW.replace('30.0', rate))}"
        for name, rate in (("all_gather_perf", "5.0"), ("all_reduce_perf_mpi", "7.0"))
    )

    assert values("nccl-all_gather", reduce + gather) == [5.0]
    assert values("nccl-tests", reduce + gather) == [7.0]
    assert said("nccl-sendrecv", reduce) == [("refused", "this is the output of all_reduce_perf_mpi, not of sendrecv_perf")]  # fmt: skip


def test_a_line_of_nccl_behind_a_whole_row_takes_nothing_from_it() -> None:
    info = "n1:7:9 [0] NCCL INFO comm 0x55 rank 0 - Destroy COMPLETE"

    assert values("nccl-tests", table(NEW, ROW + info)) == [30.0]
    assert (
        "another line was printed into it"
        in said("nccl-tests", table(NEW, ROW[:30] + info[:20]))[0][1]
    )
    assert "is `3,0`" in said("nccl-tests", table(NEW, ROW.replace("30.0", "3,0")))[0][1]


@pytest.mark.parametrize(
    ("why", "said_of_it"),
    [("out of memory", "no memory on a GPU"), ("invalid device ordinal", "not enough GPUs")],
)
def test_a_gpu_that_is_missing_or_full_is_no_failure(why: str, said_of_it: str) -> None:
    line = f"n1: Test CUDA failure common.cu:941 '{why}'\n .. n1 pid 7: Test failure common.cu:9\n"
    (one,) = read("nccl-tests", f"# nThread 1\n{devices(1, 8)}{line}")

    assert (one.status, said_of_it in one.text) == (NOT_MEASURED, True)


RECORDS = [
    {"numCycle": 0, "name": "AllReduce", "nodes": 2, "ranks": 16, "ranksPerNode": 8, "gpusPerRank": 1, "size": size,
     "type": "float", "redop": "sum", "inPlace": side, "time": 9.5, "algBw": 10.0, "busBw": speed, "wrong": 0}
    for size, side, speed in ((1024, 0, 3.0), (1024, 1, 3.1), (2048, 0, 6.5), (2048, 1, 6.25))
]  # fmt: skip


def as_csv(records: list[dict], comma: str = ",") -> str:
    lines = [records[0].keys(), *(one.values() for one in records)]
    return "".join(comma.join(map(str, line)) + "\n" for line in lines)


@pytest.mark.parametrize("form", [json.dumps, as_csv, lambda rows: as_csv(rows, ", ")])
def test_the_json_and_the_csv_of_rccl_tests_are_read(form) -> None:
    (one,) = read("rccl-tests", form(RECORDS))
    assert (one.value, one.out_of_place, one.in_place, one.size) == (6.25, 6.5, 6.25, 2048)
    assert (one.ranks, "2 nodes" in one.text) == (16, True)

    wrong = [*RECORDS[:-1], RECORDS[-1] | {"wrong": 3}]
    alone = [one | {"ranks": 1} for one in RECORDS]
    assert [read("rccl-tests", form(rows))[0].status for rows in (wrong, alone, RECORDS[:-1])] == [FAILED, REFUSED, NOT_MEASURED]  # fmt: skip


def test_a_json_of_rccl_tests_that_was_cut_is_called_so() -> None:
    assert "the JSON is not complete" in said("rccl-tests", json.dumps(RECORDS)[:-9])[0][1]


# ---- iperf3


def stream(*, full: bool, rate: float = 9e9) -> str:
    """`--json-stream`, and `--json-stream-full-output`, which has all of it behind once more."""
    parts = {
        "start": {"version": "iperf 3.21", "test_start": {"protocol": "TCP", "num_streams": 1}},
        "interval": {"sum": {"bits_per_second": rate}},
        "end": {"sum_sent": {"retransmits": 7}, "sum_received": {"bits_per_second": rate}},
    }
    events = "".join(json.dumps({"event": key, "data": parts[key]}) + "\n" for key in parts)
    whole = {"start": parts["start"], "intervals": [parts["interval"]], "end": parts["end"]}
    return events + (json.dumps(whole, indent="\t") + "\n" if full else "")


def test_a_stream_that_stands_behind_itself_in_full_is_one_result() -> None:
    assert values("iperf3", stream(full=True)) == [9.0]
    assert values("iperf3", stream(full=True) + stream(full=True, rate=8e9)) == [9.0, 8.0]
    assert values("iperf3", stream(full=False) + stream(full=False, rate=8e9)) == [9.0, 8.0]
    assert values("iperf3", stream(full=True).partition('{"event": "end"')[0]) == [None]


def test_what_the_server_said_is_not_added_to_the_text_of_the_client() -> None:
    text = recorded("iperf3-text")
    rows = [line for line in text.splitlines() if "receiver" in line]
    other = "\n".join(rows).replace("[  5]", "[  9]")
    inside = text.replace("iperf Done.", f"Server output:\nAccepted connection\n{other}\n\niperf Done.")  # fmt: skip

    assert values("iperf3", inside) == values("iperf3", text) != [None]
    assert values("iperf3", inside.replace("iperf Done.", "")) == [None]


def test_the_text_of_iperf3_names_both_ends() -> None:
    text = recorded("iperf3-text")
    ends = re.search(r"local (\S+) port \d+ connected to (\S+) port", text)

    assert ends
    assert [one.hosts for one in read("iperf3", text)] == [tuple(dict.fromkeys(ends.groups()))]


def test_a_json_of_iperf3_with_lists_where_words_belong_is_read() -> None:
    found = json.loads(recorded("iperf3-tcp"))
    found["end"]["streams"][0]["sender"]["sender"] = [1]

    assert values("iperf3", json.dumps(found)) == values("iperf3", recorded("iperf3-tcp"))


def test_a_server_of_iperf3_that_only_sent_says_nothing_of_what_arrived() -> None:
    found = json.loads(recorded("iperf3-tcp"))
    found["end"]["sum_received"]["bits_per_second"] = 0
    client = json.dumps(found)
    found["start"]["accepted_connection"] = {"host": "10.0.0.2", "port": 4711}

    assert said("iperf3", client)[0][0] == "failed"
    assert said("iperf3", json.dumps(found)) == [("not measured", "this is the server's output: give the client's")]  # fmt: skip


# ---- fio


def job(name: str, moved: int, ms: int) -> dict:
    side = {"io_bytes": moved, "runtime": ms, "bw_bytes": moved * 1000 // ms, "iops": 10.0}
    return {"jobname": name, "error": 0, "read": side, "write": {"io_bytes": 0, "bw_bytes": 0}}


def reports(*jobs: list[dict]) -> str:
    return "".join(json.dumps({"fio version": "fio-3.33", "jobs": one}, indent=1) + "\n" for one in jobs)  # fmt: skip


def test_reports_of_a_run_of_fio_on_its_way_are_not_runs() -> None:
    first, second = [job("a", 1000, 10), job("b", 500, 10)], [job("a", 1000, 10), job("b", 900, 20)]

    assert values("fio", reports(first, second)) == [0.1, 0.045]
    assert values("fio", reports(first, first)) == [0.1, 0.05, 0.1, 0.05], "two runs"
    assert len(values("fio", reports(first, [job("a", 1001, 10), job("b", 501, 10)]))) == 4
    assert len(values("fio", reports(first, second[:1]))) == 3, "other jobs"
    once = recorded("fio-text")
    early = "\nRun status group 0 (all jobs):\n   READ: bw=8MiB/s (9MB/s), io=9MiB, run=9-9msec\n"
    assert values("fio", once.replace("\nRun status", f"{early}\nRun status")) == values(
        "fio", once
    )


def test_a_text_that_only_speaks_of_groups_of_fio_has_none() -> None:
    assert [one.status for one in read("fio", "Look for `Run status group` at the end.\n")] == [
        NOT_MEASURED
    ]


def terse(version: str, *, moved: int, ms: int, error: int = 0) -> str:
    """A line of `--minimal`: 41 columns a direction, 47 since version 5."""
    each = 47 if version == "5" else 41
    side = [moved, moved * 1000 // ms, 25, ms, *[0] * 8, "1.000000%=0", *[0] * (each - 13)]
    head = [version, *(["fio-3.33"] if version != "2" else []), "my job", 0, error]
    return ";".join(map(str, [*head, *side, *side, *[0] * 90])) + "\n"


@pytest.mark.parametrize("version", "2345")
def test_every_version_of_the_line_of_fio_is_read(version: str) -> None:
    once = terse(version, moved=2000, ms=1000)

    assert values("fio", once) == [pytest.approx(2.048)] * 2
    assert values("fio", once + terse(version, moved=5000, ms=2000)) == [pytest.approx(2.56)] * 2
    assert len(values("fio", once + terse(version, moved=2100, ms=1001))) == 4, "two runs"
    assert said("fio", terse(version, moved=1, ms=1, error=5)) == [("failed", "my job: error 5")]


def test_the_json_of_fio_2_has_its_rate_in_kibibytes_alone() -> None:
    old = {"jobname": "a", "error": 0, "read": {"bw": 1000, "iops": 2}, "write": {"bw": 0}}

    assert values("fio", reports([old])) == [pytest.approx(1.024)]


def test_reading_and_writing_that_fio_does_not_tell_apart_are_one_result() -> None:
    both = {"jobname": "a", "error": 0, "mixed": {"bw_bytes": 5e6, "iops": 2.0}}
    text = "fio-3.33\n\nRun status group 0 (all jobs):\n  MIXED: bw=271MiB/s (284MB/s), io=272MiB\n"

    assert values("fio", reports([both])) == [5.0]
    assert values("fio", text) == [284.0]


# ---- perftest

RULE = "-" * 87 + "\n"


def perftest(*rows: str, test: str = "RDMA_Write BW", sl: str = "", ends: str = RULE) -> str:
    head = f" #bytes    {sl} #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    named = f"{RULE}                    {test} Test\n Mtu             : 4096[B]\n{RULE}"
    return named + head + "".join(f" {row}\n" for row in rows) + ends


def test_of_service_levels_the_sum_counts() -> None:
    rows = ("65536 0 5000 0.00 10.1 0.1", "65536 1 5000 0.00 20.2 0.1")
    (one,) = read("ib_send_bw", perftest(*rows, test="Send BW", sl="#sl"))

    assert (one.value, "2 service levels together" in one.text) == (pytest.approx(30.3), True)


def test_a_run_without_end_gives_its_last_whole_report() -> None:
    rows = ("65536 88 0.00 92.57 0.1", "65536 89 0.00 92.61 0.1")
    (one,) = read("ib_write_bw", perftest(*rows, ends=""))

    assert (one.value, "its last report on the way" in one.text) == (92.61, True)
    assert values("ib_write_bw", perftest(*rows, ends="")[:-5]) == [None]
    assert values("ib_write_bw", perftest(rows[0], rows[1].replace("65", "75"), ends="")) == [None]


def test_a_latency_of_which_nothing_came_back_in_time_says_so() -> None:
    head = " #bytes        #iterations       t_avg[usec]    tps average\n"
    text = f"{RULE}RDMA_Read Latency Test\n{RULE}{head} 2 40 inf 0.00\n{RULE}"
    (one,) = read("ib_read_lat", text)

    assert (one.value, one.status) == (None, Outcome.NOT_MEASURED)
    assert one.text == "the row says inf, nothing was counted: measure again on an idle node"


def test_what_perftest_itself_calls_too_slow_or_broken_is_a_failure() -> None:
    row = "65536 5000 0.00 92.5 0.1"

    for line in ("Error: BW result is below bw limit\n", " poll CQ failed -1\n"):
        (one,) = read("ib_write_bw", perftest(row) + line)
        assert (one.status, line.strip() in one.text) == (FAILED, True)


def test_the_status_of_a_completion_is_explained_in_both_its_forms() -> None:
    for line in (
        "Failed status 12: wr_id 0 syndrom 0x81",
        "Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81",
    ):
        ((status, text),) = said(
            "ib_write_bw", f" Completion with error at client\n {line}\n scnt=128, ccnt=0\n"
        )
        assert (status, f"`{line}`" in text, "the other end did not answer" in text) == (
            "failed",
            True,
            True,
        )


def test_runs_of_other_programs_of_perftest_are_passed_over() -> None:
    mine, other = perftest("8 5 0 1.5 0.1"), perftest("8 5 0 2.5 0.1", test="Send BW")

    assert values("ib_write_bw", other + mine + other) == [1.5]
    assert [one.status for one in read("ib_write_bw", other)] == [REFUSED]


def test_numbers_behind_the_table_of_perftest_are_no_rows_of_it() -> None:
    assert values("ib_write_bw", perftest("8 5 0 1.5 0.1") + "\n 9999 5 0 7.5 0.1\n" + RULE) == [
        1.5
    ]


def test_the_mtu_of_an_old_perftest_is_known() -> None:
    old = perftest("65536 5000 0.00 95.9 0.1").replace("4096[B]", "2048B")

    assert "at MTU 2048" in read("ib_write_bw", old)[0].text


# ---- the others


def test_rping_that_connected_but_printed_no_pings_is_told_from_one_that_did_not() -> None:
    debug = (
        "count 10\ncreated cm_id 0x55\nESTABLISHED\nsend completion\nclient DISCONNECT EVENT...\n"
    )

    assert said("rping", debug) == [("not measured", "no pings in it: it connected, but only `-v` prints the pings")]  # fmt: skip
    server = "server ping data: rdma-ping-0: ABC\nbash: foo: command not found\n"
    assert "this is the server's output" in said("rping", server)[0][1]


def test_pings_before_an_error_do_not_show_that_rdma_works() -> None:
    pings = "ping data: rdma-ping-0: ABC\nping data: rdma-ping-1: BCD\n"
    flushed = "client DISCONNECT EVENT...\ncq completion failed status 5\n"

    for line in ("cq completion failed status 12", "wait for RDMA_WRITE_ADV state 10"):
        assert said("rping", f"{pings}{line}\n")[0] == ("failed", f"it broke after 2 pings: `{line}`")  # fmt: skip
    assert values("rping", pings + flushed) == [2]


def test_two_runs_of_mpi4py_with_their_ranks_are_two_results() -> None:
    run = (
        "Hello, World! I am process 0 of 2 on {a}.\nHello, World! I am process 1 of 2 on {b}.\n"
        "# MPI PingPong Test\n# Size [B]  Bandwidth [MB/s] | Time Mean [s] ± StdDev [s]  Samples\n"
        "   4194304          {rate} | 3.81e-04 ± 4.63e-06    10\n"
    )

    found = read("mpi4py.bench", run.format(a="n1", b="n2", rate="11000.12") + run.format(a="n1", b="n3", rate="900.5"))  # fmt: skip

    assert [(one.value, one.hosts) for one in found] == [(11000.12, ("n1", "n2")), (900.5, ("n1", "n3"))]  # fmt: skip


def test_what_stress_ng_skipped_or_does_not_trust_is_not_called_busy() -> None:
    cpu = "cpu 515 10.00 40.00 0.20 51.5 25.4"
    doubt = stressors(cpu).replace("4 cpu\n", "4 cpu\nstress-ng: info:  [7] metrics untrustworthy: 1: cpu (1)\n")  # fmt: skip

    assert said("stress-ng", stressors("cpu 0 0.00 0.00 0.00 0.00 0.00")) == [("not measured", "cpu did not run")]  # fmt: skip
    assert said("stress-ng", doubt) == [("not measured", "it does not trust its own numbers: `metrics untrustworthy: 1: cpu (1)`")]  # fmt: skip


def test_a_text_of_fio_that_ends_behind_the_name_of_its_group_was_cut_off() -> None:
    assert said("fio", "fio-3.36\n\nRun status group 0 (all jobs):\n   RE") == [("not measured", "no rate behind `Run status group`: the run was cut off")]  # fmt: skip


def stressors(*lines: str) -> str:
    names = ", ".join(f"4 {line.split()[0]}" for line in lines)
    rows = "".join(f"stress-ng: metrc: [7] {line}\n" for line in lines)
    return f"stress-ng: info:  [7] dispatching hogs: {names}\n{rows}stress-ng: info:  [7] successful run completed in 10s\n"


def test_only_a_stressor_that_never_waits_shows_that_a_node_was_busy() -> None:
    hdd, cpu = "hdd 3675 10.00 1.00 1.00 367.5 1837.5", "cpu 515 10.00 20.00 0.20 51.5 25.4"

    assert values("stress-ng", stressors(hdd)) == [367.5]
    assert said("stress-ng", stressors(cpu)) == [("not measured", "the node was busy: only 50 % of the CPU was ours")]  # fmt: skip
    assert "or its stressors shared cores" in said("stress-ng", stressors(hdd, cpu))[1][1]


def test_a_barrier_of_osu_that_does_not_block_is_read() -> None:
    head = (
        "       Overall(us)       Compute(us)    Coll. Init(us)    Pure Comm.(us)        Overlap(%)"
    )
    row = (
        "             89.72             68.02              5.67             63.15             65.64"
    )
    text = f"\n# OSU MPI Non-blocking Barrier Latency Test v5.7.1\n\n{head}\n{row}\n"

    assert values("osu", text) == [89.72]
    assert values("osu", text.replace("             65.64", "")) == [None]


def test_a_stream_that_checks_nothing_is_not_only_called_cut_off() -> None:
    text = "Function  Rate (MB/s)  Avg time\nTriad:  7222511.2838  0.0017  0.0017  0.0017\n"

    assert "or this STREAM does not check its values" in said("stream", text)[0][1]


@pytest.mark.parametrize("file", ["mpi4py-busy", "iperf3-tcp", "hpcc", "nccl-2x8", "fio-text"])
def test_a_mail_that_quotes_characters_is_read(file: str) -> None:
    recipe = {"mpi4py-busy": "mpi4py.bench", "nccl-2x8": "nccl-tests"}.get(file, file.partition("-")[0])  # fmt: skip
    text = recorded(file)
    quoted = quopri.encodestring(text.encode()).decode()
    mail = f"From: me\nContent-Transfer-Encoding: quoted-printable\n\nHello,\n\n{quoted}"

    assert (
        values(recipe, mail) == values(recipe, mail.replace("\n", "\r\n")) == values(recipe, text)
    )
    assert values(recipe, quoted) == values(recipe, text)
    assert not re.search("None", str(values(recipe, text)))


DCGM = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Inforom                   | Pass                                           |
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Pass - All                                     |
+-----  Stress  ------------+------------------------------------------------+
+---------------------------+------------------------------------------------+
"""


def test_a_table_of_dcgmi_that_ends_at_a_section_was_cut_off() -> None:
    assert values("dcgmi", DCGM + "+---+---+\n| Link | X |\n") == values("dcgmi", DCGM) == [2.0]
    assert values("dcgmi", DCGM[: DCGM.index("+-----  Stress")]) == [None]
    assert values("dcgmi", DCGM[: DCGM.rindex("+------")]) == [None]
    assert values("dcgmi", DCGM[: DCGM.index("| PCIe")]) == [None]


def results(*statuses: str) -> dict[str, object]:
    """A test of DCGM 4 in JSON: a summary, and each GPU."""
    each = [{"entity_group": "GPU", "entity_id": gpu, "status": one} for gpu, one in enumerate(statuses)]  # fmt: skip
    return {"name": "memory", "test_summary": {"status": min(statuses)}, "results": each}


def test_a_test_of_dcgmi_counts_once_and_names_the_gpus_on_which_it_failed() -> None:
    def told(*tests: object) -> str:
        return json.dumps(
            {"DCGM Diagnostic": {"test_categories": [{"category": "x", "tests": tests}]}}
        )

    software = results("Pass", "Pass", "Skip") | {"name": "software"}
    assert said("dcgmi", told(software, results("Pass", "Pass", "Pass")))[0][1].startswith(
        "2 tests (2 pass)"
    )
    assert said("dcgmi", told(software, results("Pass", "Fail", "Fail"))) == [
        ("failed", "failed: memory (GPU 1, 2)")
    ]
    assert said("dcgmi", DCGM.replace("Pass - All", "Fail - GPUs: 1, 3")) == [
        ("failed", "failed: PCIe (GPU 1, 3)")
    ]
    rows = "| memory | Fail |\n|        | GPU0: Pass |\n|        | GPU7: Fail |\n"
    assert said("dcgmi", rows) == [("failed", "failed: memory (GPU 7)")]
    refusal = "Error: Diagnostic can only be performed on a homogeneous group of GPUs."
    for line in (
        refusal,
        "GPU 2's MIG configuration is incompatible with the diagnostic because it prevents access to the entire GPU.",
    ):
        assert line[:100] in said("dcgmi", line + "\n")[0][1]


def test_how_many_pings_were_asked_for_is_not_made_up() -> None:
    pings = "".join(f"ping data: rdma-ping-{number}: ABC\n" for number in range(3))

    assert "(how many were asked for is not in it)" in said("rping", pings)[0][1]
    assert (
        "of the 3 that were asked for" in said("rping", f"$ rping -c -a n2 -v -C 3\n{pings}")[0][1]
    )
    assert said("rping", f"$ rping -c -v -C 4\n{pings}")[0] == ("failed", "3 of 4 pings came back, then it broke")  # fmt: skip


# ---- what stands around the lines

CPUS = "".join(
    f"CPU {core} sysbench 1.0.20 (using LuaJIT)\n\n{recorded('sysbench-cpu').partition(chr(10))[2]}\n"
    for core in range(2)
)


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        ("dcgmi", DCGM),
        ("fio", reports([job("a", 1000, 10)], [job("a", 1000, 10)])),
        ("fio", terse("2", moved=2000, ms=1000)),
        ("ib_write_bw", perftest("8 5 0 1.5 0.1") + perftest("8 5 0 2.5 0.1")),
        ("iperf3", stream(full=True)),
        ("osu", recorded("osu-barrier")),
        ("sysbench", recorded("sysbench-cpu").replace("events per second", "events")),
    ],
)
@pytest.mark.parametrize(
    "around", ["0: {}", "[pod/a-x7/main] {}", "{}   ", "{}\n", "07:15:{:02d} n1 {}"]
)
def test_prefixes_and_blanks_change_nothing(recipe: str, text: str, around: str) -> None:
    pieces = around.count("{")
    lines = [around.format(*(place % 60, line)[2 - pieces :]) for place, line in enumerate(text.splitlines())]  # fmt: skip

    assert values(recipe, "\n".join(lines) + "\n") == values(recipe, text)
    assert values(recipe, text) != [None]


def test_words_of_the_program_behind_a_prefix_are_no_part_of_it() -> None:
    assert len(values("sysbench", CPUS)) == 2
    tagged = "".join(f"n1: {line}\n" for line in CPUS.splitlines())

    assert values("sysbench", tagged) == values("sysbench", CPUS)


def test_time_stamps_behind_the_line_of_ansible_are_taken_off() -> None:
    lines = [f"Wed Nov 25 07:15:0{place % 10} 2026 {line}" for place, line in enumerate(recorded("iperf3-text").splitlines())]  # fmt: skip

    assert values("iperf3", "n1 | CHANGED | rc=0 >>\n" + "\n".join(lines) + "\n") == values("iperf3", recorded("iperf3-text"))  # fmt: skip


# ---- outputs of other programs


def test_a_table_of_mpi4py_is_none_of_osu() -> None:
    assert (
        "`--read mpi4py.bench` finds a result in it" in said("osu", recorded("mpi4py-busy"))[0][1]
    )


def test_what_broke_in_another_program_is_no_failure_of_this_one() -> None:
    for file in ("write-bw-server-killed", "write-bw-wrong-server"):
        assert said("ib_read_lat", recorded(file)) == [("refused", "this is the output of ib_write_bw, not of ib_read_lat")]  # fmt: skip
    pingpong = "Failed status transport retry counter exceeded (12) for wr_id 2\n"
    assert [status for status, _ in said("ib_write_bw", pingpong)] == ["not measured"]


def test_the_unit_of_stream_is_that_of_its_header() -> None:
    text = "Function      Rate (GB/s)   Avg time\nTriad:       5.9062   0.17  0.16  0.17\nSolution Validates\n"

    assert values("stream", text) == [pytest.approx(5906.2)]
    assert values("stream", text.replace("GB/s", "MB/s")) == [pytest.approx(5.9062)]
    assert "output of hpcc" in said("stream", f"This is the DARPA/DOE HPC Challenge\n{text}")[0][1]


HPL = """HPLinpack 2.3  --  High-Performance Linpack benchmark  --   December 2, 2018
T/V                N    NB     P     Q               Time                 Gflops
--------------------------------------------------------------------------------
WR11C2R4       20000   192     2     4              15.31             4.5000e+02
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   1.7e-03 ...... PASSED
WR11C2R4       30000   192     2     4              55.31             3.2500e+02
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   1.7e-03 ...... PASSED
WC11C2R4       30000   256     2     4              55.31             3.5000e+02
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   1.7e-03 ...... PASSED
End of Tests.
"""


def test_hpl_alone_is_read_with_the_check_behind_each_row() -> None:
    assert values("hpcc", HPL) == [pytest.approx(0.35)]
    assert "HPL, matrix of 30000" in said("hpcc", HPL)[0][1]
    assert [one.status for one in read("hpcc", HPL.replace("PASSED", "FAILED", 1))] == [FAILED]
    for cut in (HPL.replace("End of Tests.", ""), HPL.replace("...... PASSED", "", 1)):
        assert [one.status for one in read("hpcc", cut)] == [NOT_MEASURED]


def test_himeno_in_fortran_says_its_speed_behind_the_loops() -> None:
    text = " MFLOPS:    2101.8  time(s):  0.19\n Loop executed for     901  times\n Gosa :   8.5E-04\n MFLOPS:    2188.25  time(s):  56.1\n"

    assert values("himeno", text) == [2188.25]
    assert values("himeno", text[: text.index(" Gosa")]) == [None]


def test_a_rate_of_stream_that_is_no_number_is_quoted() -> None:
    assert said("stream", "Triad:  inf  0.1\nSolution Validates\n")[0][1].startswith(
        "the rate of Triad is `inf`"
    )


def test_of_several_tests_of_osu_each_says_its_name() -> None:
    latency = "# OSU MPI-CUDA Latency Test v7.3\n# Size       Avg Latency(us)\n8     1.50\n"
    both = latency + latency.replace("Latency Test", "Multi Latency Test")

    assert [text.partition(":")[0] for _, text in said("osu", both)] == [
        "1.5 us at 8 B (Latency)",
        "1.5 us at 8 B (Multi Latency)",
    ]


def test_a_value_that_fio_finds_wrong_fails_whatever_it_says_at_its_end() -> None:
    line = "verify: bad magic header 0, wanted acca at file /dev/sda offset 31232, length 512"

    assert said("fio", f"{line}\n{recorded('fio-text')}") == [("failed", f"wrong values: `{line}`")]


def test_ranks_of_osu_that_were_alone_say_so() -> None:
    told = "This test requires exactly two processes\n[17387.2] [n1:8 :0] sock.c:515 UCX  WARN unable to read\n"

    ((status, text),) = said("osu", told)
    assert (status, "exactly two processes`: the launcher started" in text) == (
        "not measured",
        True,
    )


def test_a_failed_assertion_of_mpi_is_a_failure() -> None:
    rows = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n1      5.26\n16384   3815.50\n"

    assert (
        said("osu", f"{rows}Assertion failed in file a.c at line 243: x <= y\n")[0][0] == "failed"
    )


# ---- one result, or none: what another run or another test has in the same text


def test_a_test_that_names_itself_is_not_read_as_another() -> None:
    row = "4096 1024 float none -1 9 3 30.0 0 9 3 31.0 0"
    other = f"# Collective test starting: alltoall_perf\n{table(NEW, row)}"

    (found,) = read("nccl-tests", other)

    assert found.status is REFUSED
    assert "alltoall_perf, not of all_reduce_perf" in found.text


@pytest.mark.parametrize("width", [64, 72, 100])
def test_lines_that_a_terminal_wrapped_are_joined(width: int) -> None:
    row = "   ".join(
        [
            "4096",
            "1024",
            "float",
            "sum",
            "-1",
            "9.25",
            "3.14",
            "30.0",
            "0",
            "9.25",
            "3.14",
            "31.0",
            "0",
        ]
    )
    rows = "\n".join(row.replace("4096", str(4096 << n)) for n in range(4))
    whole = table("#   ".join(NEW.split("# ")), rows)
    wrapped = "".join(
        f"{line[place : place + width]}\n"
        for line in whole.splitlines()
        for place in range(0, len(line) or 1, width)
    )

    assert values("nccl-tests", whole) == [30.0]
    assert values("nccl-tests", wrapped) == [30.0]


DASHES = "-" * 87
BANNER = f"{DASHES}\n                    RDMA_Write BW Test\n Mtu             : 4096[B]\n{DASHES}\n"
COLUMNS = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"


def test_rows_of_two_clients_that_wrote_at_the_same_time_are_nobodys() -> None:
    first, second = (
        f" 65536      5000     {n + 0.01}      {n}    0.18\n{DASHES}\n" for n in (97, 47)
    )
    banner = BANNER + COLUMNS

    assert values("ib_write_bw", banner + first + banner + second) == [97.0, 47.0]
    assert [one.status for one in read("ib_write_bw", banner + banner + first + second)] == [
        REFUSED
    ]


IMB_HEAD = "# Maximum message length in bytes:   4096\n"
IMB_PING = (
    "# Benchmarking PingPong \n# #processes = 2 \n"
    "       #bytes #repetitions      t[usec]   Mbytes/sec\n         4096         1000         1.25      3200.0\n\n"
)


def imb_all(*rows: str) -> str:
    return (
        "# Benchmarking Allreduce \n# #processes = 16 \n"
        "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]      defects\n"
        + "".join(f"{row}\n" for row in rows)
    )


def test_wrong_values_of_one_benchmark_are_those_of_the_run() -> None:
    bad = imb_all("   4  1000  5.05  5.38  5.22  1.00", "   4096  10  20.1  20.7  20.4  0.00")
    end = "\n# All processes entering MPI_Finalize\n"

    assert [one.status for one in read("imb", IMB_HEAD + IMB_PING + bad + end)] == [FAILED]


def test_a_run_that_was_cut_off_has_one_answer_that_says_where() -> None:
    cut = imb_all("   4  1000  5.05  5.38  5.22  0.00")

    (found,) = read("imb", IMB_HEAD + IMB_PING + cut)

    assert found.status is NOT_MEASURED
    assert "Allreduce of 16 ranks: the run was cut off" in found.text
