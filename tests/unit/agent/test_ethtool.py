"""Counters of network drivers: which add up to what, and asked of this machine."""

import contextlib
import socket

import pytest

from rankdeck_agent.collectors.ethtool import EthtoolCollector, added_up, statistics

DRIVERS = {
    "mlx5": (
        {"rx_prio3_pause": 7, "rx_prio3_pause_duration": 4_000_000, "rx_global_pause_duration": 1_000_000,
         "tx_prio3_pause_duration": 9_000_000, "rx_prio3_discards": 2, "rx_prio0_buf_discard": 3,
         "rx_discards_phy": 1, "rx_packets": 99},
        {"net.paused": 5.0, "net.pause_frames": 7, "net.card_drops": 6},
    ),
    "ice": (
        {"rx_priority_3_xoff.nic": 5, "tx_priority_3_xoff.nic": 8, "rx_dropped.nic": 4},
        {"net.pause_frames": 5, "net.card_drops": 4},
    ),
    "bnxt_en": (
        {"rx_pfc_ena_frames_pri3": 6, "pfc_pri3_rx_duration_us": 2_000_000, "rx_discard_frames": 1},
        {"net.paused": 2.0, "net.pause_frames": 6, "net.card_drops": 1},
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
                found[name] = statistics(asked.fileno(), name)
    counted = [counters for counters in found.values() if counters]
    if not counted:
        pytest.skip("no network interface here has counters of its driver")

    for counters in counted:
        assert all(name and name.isprintable() and len(name) <= 32 for name in counters)
        assert all(number >= 0 for number in counters.values())


def test_a_recording_is_not_mixed_with_the_cards_of_this_machine(tmp_path):
    reading = EthtoolCollector(str(tmp_path)).collect(0.0)

    assert (reading.values, reading.failed) == ({}, {})
