"""RDMA ports: made ones of every driver, and recorded ones."""

import errno
import re

import pytest

from rankdeck_agent.collectors.rdma import RdmaCollector
from rankdeck_agent.collectors.rdma_inventory import gid_address
from rankdeck_agent.collectors.rdma_ports import BASE
from rankdeck_agent.rdma_counters import SUMS, TOPS, WRAPS
from rankdeck_agent.sampler import Sampler
from rankdeck_agent.system_files import Tree
from rankdeck_agent.wire import METRICS
from tests.unit.agent.machines import DATA, PORT, copy_recorded, make_machine, unpack_rxe, write

KEY = "mlx5_0/1"


def made(root, port, **counters):
    """A port with these counters; keys are `folder__name`."""
    base = f"{BASE}/{port.partition('/')[0]}/ports/{port.partition('/')[2]}"
    write(root, f"{base}/state", "4: ACTIVE\n")
    for name, value in counters.items():
        write(root, f"{base}/{name.replace('__', '/', 1)}", f"{value}\n")


def hw(root, port, names):
    made(root, port, **{f"hw_counters__{n}": v for n, v in names.items()})


def test_data_is_in_bytes_and_every_counter_keeps_its_name(tmp_path):
    reading = RdmaCollector(str(make_machine(tmp_path))).collect(0)

    values = reading.values
    assert values["rdma.rx"] == {KEY: 400}
    assert values["rdma.tx"] == {KEY: 800}
    assert values["rdma.rate"] == {KEY: 100e9}
    assert values["rdma.lanes"] == {KEY: 4}
    assert values["rdma.up"] == {KEY: 1}
    assert values["rdma.errors"] == {KEY: 3}
    assert values["rdma.retx"] == {KEY: 11}
    assert values["rdma.phys_errors"] == {KEY: 2}
    assert values["rdma.link_downs"] == {KEY: 1}
    assert values["rdma.counters.port_rcv_data"] == {KEY: 100}
    assert values["rdma.hw_counters.out_of_sequence"] == {KEY: 5}
    assert reading.inventory[f"rdma.{KEY}.fw"] == "20.31.1014"


def test_bytes_come_at_every_beat_and_the_rest_at_its_own_period(tmp_path):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    rdma.collect(0)
    write(tmp_path, f"{PORT}/counters/port_rcv_data", "150\n")
    write(tmp_path, f"{PORT}/state", "1: DOWN\n")

    soon, link, later = rdma.collect(1), rdma.collect(6), rdma.collect(11)

    assert soon.values == {"rdma.rx": {KEY: 600}, "rdma.tx": {KEY: 800}}
    assert soon.absent(rdma.metrics) == rdma.collect(2).absent(rdma.metrics)
    assert "rdma.errors" not in soon.absent(rdma.metrics)
    assert link.values["rdma.up"] == {KEY: 0}
    assert later.values["rdma.errors"] == {KEY: 3}


def test_a_counter_that_cannot_be_read_is_failed_and_never_zero(tmp_path):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    rdma.collect(0)
    write(tmp_path, f"{PORT}/counters/symbol_error", "garbage\n")

    reading, between = rdma.collect(10), rdma.collect(11)

    assert "garbage" in reading.failed[f"rdma.counters.symbol_error/{KEY}"]
    assert "rdma.counters.symbol_error" not in reading.values
    assert reading.values["rdma.errors"] == {KEY: 3}
    assert reading.values["rdma.rx"] == {KEY: 400}
    assert between.failed == reading.failed


def test_where_all_of_a_sum_stopped_the_sum_is_failed(tmp_path):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    rdma.collect(0)
    for name in ("symbol_error", "link_downed"):
        write(tmp_path, f"{PORT}/counters/{name}", "garbage\n")

    reading = rdma.collect(10)

    assert "rdma.errors" not in reading.values
    assert "symbol_error" in reading.failed[f"rdma.errors/{KEY}"]


def test_a_counter_that_never_answered_does_not_spoil_the_sum(tmp_path):
    root = make_machine(tmp_path)
    write(root, f"{PORT}/counters/symbol_error", "N/A (no PMA)\n")

    reading = RdmaCollector(str(root)).collect(0)

    assert reading.values["rdma.errors"] == {KEY: 1}
    assert "rdma.counters.symbol_error" not in reading.values
    assert not reading.failed


def test_a_counter_that_answers_late_joins_the_sums_with_what_it_counts_from_then_on(tmp_path):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    write(tmp_path, f"{PORT}/counters/symbol_error", "not yet\n")
    sums = [rdma.collect(0).values["rdma.errors"]]

    for at, text in ((10, "5000"), (20, "5007"), (30, "4")):
        write(tmp_path, f"{PORT}/counters/symbol_error", f"{text}\n")
        sums.append(rdma.collect(at).values["rdma.errors"])

    # Before: only link_downed. In the end it was cleared, and has counted 4 since.
    assert [by_port[KEY] for by_port in sums] == [1, 1, 8, 5]


def test_paths_that_efa_changed_after_a_time_out_are_no_errors(tmp_path):
    hw(tmp_path, "efa_0/1", {"retrans_timeout_events": 7, "unresponsive_remote_events": 1})

    values = RdmaCollector(str(tmp_path)).collect(0).values

    assert (values["rdma.timeouts"], values["rdma.errors"]) == ({"efa_0/1": 7}, {"efa_0/1": 1})


def test_what_a_full_fabric_makes_a_port_drop_is_no_error_of_the_port(tmp_path):
    root = make_machine(tmp_path)
    write(root, f"{PORT}/counters/port_xmit_discards", "70\n")

    values = RdmaCollector(str(root)).collect(0).values

    assert (values["rdma.discards"], values["rdma.errors"]) == ({KEY: 70}, {KEY: 3})


def test_a_counter_that_keeps_failing_is_asked_seldom_and_comes_back(tmp_path):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    write(tmp_path, f"{PORT}/counters/symbol_error", "bad\n")
    for at in range(0, 40, 10):
        rdma.collect(at)
    write(tmp_path, f"{PORT}/counters/symbol_error", "7\n")

    resting, later = rdma.collect(50), rdma.collect(100)

    assert f"rdma.counters.symbol_error/{KEY}" in resting.failed
    assert later.values["rdma.counters.symbol_error"] == {KEY: 7}
    assert later.failed == {}


@pytest.mark.parametrize("name", ["excessive_buffer_overrun_errors", "port_xmit_wait"])
def test_beside_a_counter_that_sticks_the_others_are_counted(tmp_path, name):
    root = make_machine(tmp_path)
    rdma = RdmaCollector(str(root))
    write(root, f"{PORT}/counters/{name}", f"{TOPS[name]}\n")
    before = rdma.collect(0)
    write(root, f"{PORT}/counters/symbol_error", "902\n")

    reading = rdma.collect(10)

    assert set(reading.failed) >= {f"rdma.counters.{name}/{KEY}"}
    for metric in ("rdma.errors", "rdma.phys_errors"):
        assert reading.values[metric][KEY] - before.values[metric][KEY] == 900


@pytest.mark.parametrize(
    ("name", "top", "metric"),
    [
        ("link_downed", 255, "rdma.link_downs"),
        ("port_rcv_data", (1 << 32) - 1, "rdma.rx"),
        ("port_rcv_data", (1 << 64) - 1, "rdma.rx"),
    ],
)
def test_a_counter_that_sticks_is_blind_and_not_a_number(tmp_path, name, top, metric):
    root = make_machine(tmp_path)
    rdma = RdmaCollector(str(root))
    write(root, f"{PORT}/counters/{name}", f"{top // 8}\n")
    before = rdma.collect(0)
    write(root, f"{PORT}/counters/{name}", f"{top}\n")

    reading = rdma.collect(10)

    assert before.failed == {}
    assert "saturated" in reading.failed[f"rdma.counters.{name}/{KEY}"]
    assert "saturated" in reading.failed[f"{metric}/{KEY}"]
    assert metric not in reading.values


def test_a_counter_of_the_same_name_that_is_wider_does_not_stick(tmp_path):
    hw(tmp_path, "rxe0/1", {"link_downed": 255})

    reading = RdmaCollector(str(tmp_path)).collect(0)

    assert reading.values["rdma.link_downs"] == {"rxe0/1": 255}


def test_the_wide_counters_of_mlx4_are_taken_where_the_plain_ones_stick(tmp_path):
    root = make_machine(tmp_path)
    write(root, f"{PORT}/counters/port_rcv_data", f"{(1 << 32) - 1}\n")
    write(root, f"{PORT}/counters_ext/port_rcv_data_64", f"{1 << 40}\n")

    reading = RdmaCollector(str(root)).collect(0)

    assert reading.values["rdma.rx"] == {KEY: 4 << 40}
    assert reading.values["rdma.counters_ext.port_rcv_data_64"] == {KEY: 1 << 40}


def test_a_counter_of_32_bits_goes_on_where_it_began_again(tmp_path):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    seen = []
    for at, raw in enumerate(((1 << 32) - 10, 5, 20, 3)):
        write(tmp_path, f"{PORT}/hw_counters/out_of_sequence", f"{raw}\n")
        values = rdma.collect(at * 10).values
        seen.append(values["rdma.hw_counters.out_of_sequence"][KEY])

    assert seen == [(1 << 32) - 10, (1 << 32) + 5, (1 << 32) + 20, 3]


DRIVERS = {
    "mlx5": ({"np_ecn_marked_roce_packets": 1, "rp_cnp_handled": 2, "np_cnp_sent": 100, "out_of_buffer": 3,
              "local_ack_timeout_err": 4, "req_transport_retries_exceeded": 5},
             {"rdma.congestion": 3, "rdma.not_ready": 3, "rdma.timeouts": 4, "rdma.retries_exhausted": 5,
              "rdma.retx": 4}),
    "irdma, as in the seed story": (
             {"ip4InOctets": 10, "ip6InOctets": 5, "ip4OutOctets": 7, "ip6OutOctets": 0, "RxECNMrkd": 2,
              "cnpHandled": 1, "cnpSent": 9, "tcpRetransSegs": 4, "ip4InDiscards": 6, "iwInRdmaWrites": 1},
             {"rdma.rx": 15, "rdma.tx": 7, "rdma.congestion": 3, "rdma.retx": 4, "rdma.discards": 6}),
    "irdma, renamed": (
             {"ip4InOctets": 10, "ip4OutOctets": 7, "RetransSegs": 4, "RTO": 2, "RNR sent": 1, "RNR received": 2,
              "Nak Sequence Error": 3, "CRC errors": 5, "InRdmaWrites": 1},
             {"rdma.rx": 10, "rdma.retx": 9, "rdma.timeouts": 2, "rdma.not_ready": 3, "rdma.phys_errors": 5}),
    "bnxt_re": (
             {"rx_bytes": 8, "tx_bytes": 9, "to_retransmits": 1, "max_retry_exceeded": 2, "rx_ecn_marked": 3,
              "rx_cnp": 4, "tx_cnp": 50, "rnr_naks_rcvd": 5, "rx_roce_discards": 6},
             {"rdma.rx": 8, "rdma.tx": 9, "rdma.timeouts": 1, "rdma.retries_exhausted": 2, "rdma.congestion": 7,
              "rdma.not_ready": 5, "rdma.discards": 6}),
    "bnxt_re, newer": (
             {"rx_ecn_marked_pkts": 3, "rx_cnp_pkts": 4, "tx_cnp_pkts": 50, "missing_resp": 2, "tx_roce_errors": 1,
              "tx_roce_discards": 6, "active_qps": 900, "watermark_qps": 1000},
             {"rdma.congestion": 7, "rdma.retx": 2, "rdma.errors": 1, "rdma.discards": 6}),
    "ionic": ({"rx_rdma_ucast_bytes": 8, "rx_rdma_mcast_bytes": 1, "tx_rdma_ucast_bytes": 9, "rx_rdma_ecn_pkts": 3,
               "rx_rdma_cnp_pkts": 4, "tx_rdma_cnp_pkts": 50, "tx_rdma_retx_pkts": 2, "tx_rdma_ack_timeout": 6,
               "req_tx_retry_excd_err": 5, "resp_rx_outof_buf": 7},
              {"rdma.rx": 9, "rdma.tx": 9, "rdma.congestion": 7, "rdma.retx": 2, "rdma.timeouts": 6,
               "rdma.retries_exhausted": 5, "rdma.errors": 5, "rdma.not_ready": 7}),
    "erdma": ({"rx_bytes_cnt": 8, "tx_bytes_cnt": 9, "rx_bps_limit_drop_cnt": 1, "tx_pps_limit_drop_cnt": 2},
              {"rdma.rx": 8, "rdma.tx": 9, "rdma.discards": 3}),
    "hns": ({"rx_cnp_pkt": 4, "tx_cnp_pkt": 50, "rx_err_pkt": 1, "tx_err_pkt": 2},
            {"rdma.congestion": 4, "rdma.errors": 3}),
    "mana": ({"rx_bytes": 8, "tx_bytes": 9, "requester_timeout": 1, "responder_oos": 2, "requester_rnr_nak": 3,
              "requester_retries_exceeded": 4, "received_cnps": 5, "total_fatal_err": 6, "current_rate": 99},
             {"rdma.rx": 8, "rdma.tx": 9, "rdma.retx": 3, "rdma.timeouts": 1, "rdma.not_ready": 3,
              "rdma.retries_exhausted": 4, "rdma.congestion": 5, "rdma.errors": 10}),
    "mlx5, a representor": (
        {"vport_out_of_buffer": 1, "vport_packet_seq_err": 2, "vport_local_ack_timeout_err": 3,
         "vport_req_transport_retries_exceeded": 4, "vport_roce_slow_restart_cnps": 5},
        {"rdma.not_ready": 1, "rdma.retx": 5, "rdma.timeouts": 3, "rdma.retries_exhausted": 4, "rdma.errors": 4,
         "rdma.congestion": 5}),
    "mlx5, optional beside its own": (
        {"cc_rx_ce_pkts": 3, "cc_rx_cnp_pkts": 4, "np_ecn_marked_roce_packets": 3, "rp_cnp_handled": 4},
        {"rdma.congestion": 7}),
    "mlx4": ({"sq_num_tree": 1, "sq_num_rree": 2, "rq_num_oos": 3, "sq_num_to": 4, "sq_num_rnr": 5, "rq_num_wrfe": 90},
             {"rdma.retries_exhausted": 3, "rdma.errors": 3, "rdma.retx": 7, "rdma.timeouts": 4, "rdma.not_ready": 5}),
    "cxgb4": ({"ip4RetransSegs": 2, "ip6RetransSegs": 1, "ip4InSegs": 90}, {"rdma.retx": 3}),
    "mlx5, optional": ({"cc_rx_ce_pkts": 3, "cc_rx_cnp_pkts": 4, "cc_tx_cnp_pkts": 50}, {"rdma.congestion": 7}),
    "efa": ({"rx_bytes": 8, "tx_bytes": 9, "rx_drops": 1, "retrans_pkts": 2, "retrans_timeout_events": 3,
             "unresponsive_remote_events": 4, "impaired_remote_conn_events": 5},
            {"rdma.rx": 8, "rdma.discards": 1, "rdma.retx": 2, "rdma.timeouts": 3, "rdma.retries_exhausted": 9}),
}  # fmt: skip
"""Made from the name lists of the drivers; nobody recorded such trees."""


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_driver_feeds_the_common_names(tmp_path, driver):
    counters, expected = DRIVERS[driver]
    hw(tmp_path, "dev0/1", counters)

    values = RdmaCollector(str(tmp_path)).collect(0).values

    assert {m: values[m]["dev0/1"] for m in expected} == expected
    for name, value in counters.items():
        assert values[f"rdma.hw_counters.{name}"] == {"dev0/1": value}


def test_a_counter_of_which_the_firmware_gives_no_number_is_not_two_to_the_64(tmp_path):
    hw(tmp_path, "ionic_0/1", {"tx_rdma_retx_pkts": (1 << 64) - 1, "rx_rdma_ecn_pkts": 3})

    reading = RdmaCollector(str(tmp_path)).collect(0)

    assert "rdma.hw_counters.tx_rdma_retx_pkts" not in reading.values
    assert "rdma.retx" not in reading.values
    assert "no number" in reading.failed["rdma.hw_counters.tx_rdma_retx_pkts/ionic_0/1"]
    assert reading.values["rdma.congestion"] == {"ionic_0/1": 3}


def test_what_a_driver_does_not_count_is_absent(tmp_path):
    hw(tmp_path, "rxe0/1", {"rcvd_seq_err": 1})
    rdma = RdmaCollector(str(tmp_path))

    absent = rdma.collect(0).absent(rdma.metrics)

    assert {"rdma.rx", "rdma.congestion", "rdma.phys_errors"} <= absent


def test_gids_say_version_and_device_and_empty_places_say_nothing(tmp_path):
    root = make_machine(tmp_path)
    places = {
        0: ("fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", "eth0"),
        1: ("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth0"),
        2: ("0000:0000:0000:0000:0000:0000:0000:0000", None, None),
        3: ("0000:0000:0000:0000:0000:ffff:c0a8:0a04", "RoCE v2", "eth0"),
    }
    for index, (gid, kind, device) in places.items():
        write(root, f"{PORT}/gids/{index}", f"{gid}\n")
        if kind and device:
            write(root, f"{PORT}/gid_attrs/types/{index}", f"{kind}\n")
            write(root, f"{PORT}/gid_attrs/ndevs/{index}", f"{device}\n")

    inventory = RdmaCollector(str(root)).collect(0).inventory

    gids = {k: v for k, v in inventory.items() if ".gid." in k}
    assert gids == {
        f"rdma.{KEY}.gid.1": "RoCE v2 fe80:0000:0000:0000:0000:0000:0000:0001 eth0",
        f"rdma.{KEY}.gid.3": "RoCE v2 192.168.10.4 eth0",
    }


def test_only_a_mapped_address_is_written_as_one():
    assert gid_address("0000:0000:0000:0000:0000:ffff:0a00:0001") == "10.0.0.1"
    assert gid_address("fe80::1") == "fe80::1"


def test_an_excluded_device_is_not_touched_and_says_so(tmp_path):
    root = make_machine(tmp_path)
    hw(root, "mlx5_8/1", {"out_of_sequence": 1})

    reading = RdmaCollector(str(root), ("mlx5_8", "bnxt*")).collect(0)

    assert set(reading.values["rdma.up"]) == {KEY}
    assert "configuration" in reading.inventory["rdma.mlx5_8.excluded"]


class Refusing(Tree):
    """A tree in which one file gives an error of the kernel."""

    def __init__(self, root, name):
        super().__init__(root)
        self._name = name

    def read(self, name):
        if name.endswith(self._name):
            raise OSError(errno.EINVAL, "Invalid argument")
        return super().read(name)


@pytest.mark.parametrize("name", ["/VL15_dropped", "/state", "/rate", "/port_rcv_data"])
def test_one_file_that_refuses_costs_only_itself(tmp_path, name):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    rdma._tree = Refusing(str(tmp_path), name)

    reading = rdma.collect(0)

    refused = {key.partition("/")[0].rpartition(".")[2] for key in reading.failed}
    also = {"/state": {"up"}, "/rate": {"lanes"}, "/port_rcv_data": {"rx"}}
    assert refused <= {name[1:]} | also.get(name, set())
    assert all("Invalid argument (EINVAL)" in why for why in reading.failed.values())
    assert reading.failed
    assert reading.values["rdma.tx"] == {KEY: 800}


def test_a_port_that_only_fails_is_told_once_between_its_readings(tmp_path):
    hw(tmp_path, "rxe0/1", {"rcvd_seq_err": "x", "send_err": 1})
    sampler = Sampler([RdmaCollector(str(tmp_path))])

    events = [event for _ in range(4) for event in sampler.take(limit=5).events]

    assert events == []


def test_a_port_that_comes_and_goes_is_seen(tmp_path):
    root = make_machine(tmp_path)
    rdma = RdmaCollector(str(root))
    rdma.collect(0)
    hw(root, "mlx5_1/1", {"out_of_sequence": 2})

    reading = rdma.collect(10)

    assert set(reading.values["rdma.up"]) == {KEY, "mlx5_1/1"}


def test_the_recorded_ports_are_all_read(tmp_path):
    reading = RdmaCollector(str(copy_recorded(tmp_path))).collect(0)

    assert set(reading.values["rdma.up"]) == {
        "hfi1_0/1",
        "mlx4_0/1",
        "mlx4_0/2",
        "mlx5_0/1",
    }
    words = (
        DATA / "procfs/fixtures/sys/class/infiniband/hfi1_0/ports/1/counters/port_rcv_data"
    ).read_text()
    assert reading.values["rdma.rx"]["hfi1_0/1"] == int(words) * 4
    assert reading.values["rdma.rate"]["mlx5_0/1"] == 25e9


def test_a_recorded_soft_roce_port_has_counters_but_no_bytes(tmp_path):
    reading = RdmaCollector(str(unpack_rxe(tmp_path))).collect(0)

    assert reading.values["rdma.hw_counters.sent_pkts"]["rxe0/1"] > 500
    assert "rdma.rx" not in reading.values
    assert reading.values["rdma.errors"]["rxe0/1"] >= 0
    assert reading.values["rdma.phys_state"]["rxe0/1"] == 5


def test_the_counters_of_the_seed_story_are_read_as_they_were_printed(tmp_path):
    names = DATA / "seed-outputs" / "hw_counters-irdma-names.txt"
    if not names.is_file():
        pytest.skip(f"no recorded names: {names} is missing")
    listed = names.read_text().split()
    hw(tmp_path, "irdma0/1", {name: at for at, name in enumerate(listed)})

    values = RdmaCollector(str(tmp_path)).collect(0).values

    raw = {m for m in values if m.startswith("rdma.hw_counters.")}
    assert raw == {f"rdma.hw_counters.{name}" for name in listed}
    assert values["rdma.rx"]["irdma0/1"] == listed.index("ip4InOctets") + listed.index(
        "ip6InOctets"
    )


def test_every_common_name_is_a_row_of_the_table():
    assert {metric for metric, _ in SUMS} <= set(METRICS)
    assert all(METRICS[metric].kind == "counter" for metric, _ in SUMS)


def test_no_counter_both_sticks_and_wraps():
    assert not set(TOPS) & WRAPS
    assert all(re.fullmatch(r"\w+", name) for name in {*TOPS, *WRAPS})
