"""Counters of network drivers: which add up to what, and asked of this machine."""

import contextlib
import socket

import pytest

from rankdeck_agent.collectors.net import EthtoolCollector, added_up, read_driver_counters

DRIVERS = {
    "mlx5": (
        {"rx_prio3_pause": 7, "rx_prio3_pause_duration": 4_000_000, "rx_global_pause_duration": 1_000_000,
         "tx_prio3_pause_duration": 9_000_000, "rx_prio3_discards": 2, "rx_prio0_buf_discard": 3,
         "rx_discards_phy": 1, "rx_packets": 99, "tx_prio3_pause": 4, "tx_prio4_pause": 5},
        {"net.paused": {"": 5.0}, "net.prio_paused": {"3": 4.0}, "net.pause_frames": {"": 7},
         "net.prio_frames": {"3": 7}, "net.pause_sent": {"": 9}, "net.card_drops": {"": 6}},
    ),
    "mlx4": (
        {"rx_pause_prio_0": 1, "rx_pause_prio_3": 6, "rx_pause_duration_prio_3": 2_000_000, "rx_pause_transition_prio_3": 9,
         "tx_pause_prio_3": 2, "rx_pause": 4, "rx_pause_duration": 1_000_000},
        {"net.paused": {"": 3.0}, "net.prio_paused": {"3": 2.0}, "net.pause_frames": {"": 11},
         "net.prio_frames": {"0": 1, "3": 6}, "net.pause_sent": {"": 2}},
    ),
    "ice": (
        {"rx_priority_3_xoff.nic": 5, "tx_priority_3_xoff.nic": 8, "rx_priority_3_xon.nic": 5, "link_xoff_rx.nic": 1,
         "rx_dropped.nic": 4},
        {"net.pause_frames": {"": 6}, "net.prio_frames": {"3": 5}, "net.pause_sent": {"": 8}, "net.card_drops": {"": 4}},
    ),
    "i40e": (
        {"port.rx_priority_3_xoff_rx": 5, "port.rx_priority_3_xon_rx": 5, "port.rx_priority_3_xon_2_xoff": 9,
         "port.tx_priority_3_xoff_tx": 8, "port.link_xoff_rx": 2, "port.rx_discards": 4, "veb.rx_discards": 99},
        {"net.pause_frames": {"": 7}, "net.prio_frames": {"3": 5}, "net.pause_sent": {"": 8}, "net.card_drops": {"": 4}},
    ),
    "ixgbe": (
        {"rx_flow_control_xoff": 1, "rx_pb_3_pxoff": 2, "rx_pb_3_pxon": 2, "tx_flow_control_xoff": 3},
        {"net.pause_frames": {"": 3}, "net.prio_frames": {"3": 2}, "net.pause_sent": {"": 3}},
    ),
    "bnxt_en": (
        {"rx_pfc_ena_frames_pri3": 6, "rx_pfc_frames": 6, "rx_pause_frames": 1, "pfc_pri3_rx_duration_us": 2_000_000,
         "pfc_pri3_rx_transitions": 9, "rx_stat_discard": 1, "rx_discard_packets_cos3": 1, "[0]: rx_discards": 5},
        {"net.paused": {"": 2.0}, "net.prio_paused": {"3": 2.0}, "net.pause_frames": {"": 7},
         "net.prio_frames": {"3": 6}, "net.card_drops": {"": 1}},
    ),
    "ionic": (
        {"frames_rx_pripause": 3, "frames_rx_pause": 1, "frames_tx_pripause": 2, "rx_pripause_3_1us_count": 4_000_000,
         "rx_pause_1us_count": 1_000_000, "tx_pripause_3_1us_count": 9, "frames_rx_dropped": 5, "hw_rx_dropped": 1},
        {"net.paused": {"": 5.0}, "net.prio_paused": {"3": 4.0}, "net.pause_frames": {"": 4},
         "net.pause_sent": {"": 2}, "net.card_drops": {"": 6}},
    ),
    "hns3": (
        {"mac_rx_pfc_pri3_pkt_num": 2, "mac_rx_pfc_pkt_num": 2, "mac_rx_mac_pause_num": 1, "mac_tx_pfc_pri3_pkt_num": 4},
        {"net.pause_frames": {"": 3}, "net.prio_frames": {"3": 2}, "net.pause_sent": {"": 4}},
    ),
    "cxgb4": (
        {"rx_pause_frames": 1, "rx_ppp3_frames": 2, "rx_bg0_frames_dropped": 3, "rx_bg0_frames_trunc": 9},
        {"net.pause_frames": {"": 3}, "net.prio_frames": {"3": 2}, "net.card_drops": {"": 3}},
    ),
    "qede": (
        {"rx_pfc_frames": 2, "rx_pause_frames": 1, "brb_discards": 3, "no_buff_discards": 4},
        {"net.pause_frames": {"": 3}, "net.card_drops": {"": 7}},
    ),
    "mana": ({"hc_rx_discards_no_wqe": 3, "rx_0_xdp_drop": 4}, {"net.card_drops": {"": 3}}),
    "ena": (
        {"bw_in_allowance_exceeded": 3, "pps_allowance_exceeded": 4, "conntrack_allowance_available": 900,
         "linklocal_allowance_exceeded": 1, "queue_0_rx_drops": 5},
        {"net.over_limit": {"": 8}},
    ),
    "a virtual one": ({"rx_queue_0_packets": 3}, {}),
}  # fmt: skip
"""Names from the sources of the drivers; nobody recorded such output."""


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_counters_of_each_driver_add_up_to_the_common_names(driver):
    counters, wanted = DRIVERS[driver]

    assert added_up(counters) == wanted


def test_the_driver_of_this_machine_is_asked_without_a_program():
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found[name] = read_driver_counters(asked.fileno(), name)
    counted = [counters for counters in found.values() if counters]
    if not counted:
        pytest.skip("no network interface here has counters of its driver")

    for counters in counted:
        assert all(name and name.isprintable() and len(name) <= 32 for name in counters)
        assert all(number >= 0 for number in counters.values())


def test_a_recording_is_not_mixed_with_the_cards_of_this_machine(tmp_path):
    reading = EthtoolCollector(str(tmp_path)).collect(0.0)

    assert (reading.values, reading.failed) == ({}, {})
