"""Counters that only netlink tells, from a stand-in for the kernel that speaks
its format (uapi/rdma/rdma_netlink.h).
"""

import errno
import os
import socket
import struct
import threading

import pytest

from rankdeck_agent.collectors.rdma import RdmaCollector
from rankdeck_agent.collectors.rdma_netlink import HeldPair, RdmaNetlink, parse_netlink_attributes
from rankdeck_agent.job.rank_queue_pairs import read_rank_pairs
from tests.unit.agent.machines import write

GET, QP_GET, STAT_GET, STATUS = 1, 10, 17, 24
NESTED = 1 << 15


def attribute(kind, data):
    if isinstance(data, int):
        data = struct.pack("=I", data)
    if isinstance(data, str):
        data = data.encode() + b"\0"
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def nest(kind, *parts):
    return attribute(kind | NESTED, b"".join(parts))


def value(name, number):
    return nest(81, attribute(82, name), attribute(83, struct.pack("=Q", number)))


def state(name, *on):
    return nest(81, attribute(82, name), *(attribute(95, bytes([n])) for n in on))


DEVICES = [attribute(1, 0) + attribute(2, "mlx5_0"), attribute(1, 3) + attribute(2, "mlx5_1")]
BOUND = nest(
    77,
    nest(78, attribute(3, 1), attribute(79, 4), attribute(74, 1), attribute(28, os.getpid()),
         nest(19, nest(20, attribute(21, 178)), nest(20, attribute(21, 179))),
         nest(80, value("rx_write_requests", 1 << 40), value("local_ack_timeout_err", 7))),
    nest(78, attribute(3, 1), attribute(79, 5), attribute(74, 2), nest(80)),
)  # fmt: skip


class Kernel:
    """Answers on one end of a pair of sockets; asked by command and device."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        ours, self._end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = RdmaNetlink(ours)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while data := self._end.recv(65536):
            _, kind, flags, number, _ = struct.unpack_from("=IHHII", data)
            wanted = {k: struct.unpack("=I", v)[0] for k, v in parse_netlink_attributes(data[16:])}
            command = kind - (5 << 10)
            self.asked.append((command, wanted.get(1)))
            found = self.answers.get((command, wanted.get(1)), -errno.EINVAL)
            if isinstance(found, int):
                self._send(2, number, struct.pack("=i", found) + data[:16])
                continue
            for part in found:
                self._send(kind, number, part)
            if flags & 0x300:
                self._send(3, number, bytes(4))

    def _send(self, kind, number, body):
        self._end.send(struct.pack("=IHHII", 16 + len(body), kind, 0, number, 0) + body)

    def close(self):
        self.link.close()
        self._thread.join(10)
        self._end.close()


@pytest.fixture
def kernel():
    made = Kernel({
        (GET, None): DEVICES,
        (STATUS, 3): [nest(80, state("out_of_buffer"), state("cc_rx_ce_pkts", 1), state("cc_tx_cnp_pkts", 0))],
        (STAT_GET, 3): [nest(80, value("out_of_buffer", 9), value("cc_rx_ce_pkts", 1 << 33))],
    })  # fmt: skip
    yield made
    made.close()


def test_devices_and_what_is_switched_on(kernel):
    assert kernel.link.devices() == {"mlx5_0": 0, "mlx5_1": 3}
    assert kernel.link.optional(3, 1) == {"cc_rx_ce_pkts": True, "cc_tx_cnp_pkts": False}
    assert kernel.link.counters(3, 1) == {"out_of_buffer": 9, "cc_rx_ce_pkts": 1 << 33}


def test_what_the_kernel_refuses_is_an_error_with_its_number(kernel):
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.link.counters(7, 1)


def test_queue_pairs_are_told_with_process_and_counters(kernel):
    kernel.answers[STAT_GET, 0] = [BOUND]

    first, second = kernel.link.queue_pairs(0)

    assert (first.port, first.id, first.mode, first.pid) == (1, 4, "auto", os.getpid())
    assert first.numbers == (178, 179)
    assert first.values == {"rx_write_requests": 1 << 40, "local_ack_timeout_err": 7}
    assert (second.mode, second.pid, second.numbers, second.values) == ("manual", None, (), {})


def pair(pid, number, *more):
    return nest(20, attribute(21, number), attribute(28, pid), *more)


CONNECTED = (attribute(22, 18), attribute(26, b"\2"), attribute(27, b"\3"))
HELD = [
    nest(19, pair(70, 17, *CONNECTED), pair(71, 19, attribute(26, b"\4"), attribute(27, b"\1"))),
    nest(19, nest(20, attribute(21, 1), attribute(29, "ib_core"))),
]


def test_queue_pairs_are_told_with_the_process_that_holds_them(kernel):
    kernel.answers[QP_GET, 0] = HELD

    assert kernel.link.held_pairs(0) == [
        HeldPair(pid=70, number=17, remote=18, kind="RC", state="RTS"),
        HeldPair(pid=71, number=19, remote=None, kind="UD", state="INIT"),
    ]


def test_queue_pairs_belong_to_the_rank_of_their_process(kernel):
    kernel.answers[QP_GET, 0] = HELD
    kernel.answers[QP_GET, 3] = [nest(19, pair(72, 5, *CONNECTED))]

    found = read_rank_pairs({4: [69, 70], 5: [72], 6: [73]}, lambda: kernel.link)

    ends = {rank: [(row["device"], row["number"]) for row in rows] for rank, rows in found.items()}
    assert ends == {4: [("mlx5_0", 17)], 5: [("mlx5_1", 5)]}


def test_a_kernel_that_does_not_tell_of_queue_pairs_is_no_error(kernel):
    assert read_rank_pairs({0: [70]}, lambda: kernel.link) == {}


def test_optional_counters_stand_beside_the_files_of_their_port(kernel, tmp_path):
    port = "sys/class/infiniband/mlx5_1/ports/1"
    write(tmp_path, f"{port}/state", "4: ACTIVE\n")
    write(tmp_path, f"{port}/hw_counters/out_of_buffer", "9\n")
    rdma = RdmaCollector(str(tmp_path), kernel=lambda: kernel.link)

    first = rdma.collect(0.0)
    kernel.answers[STATUS, 3] = [nest(80, state("cc_rx_ce_pkts", 0))]
    later = rdma.collect(100.0)

    assert first.values["rdma.hw_counters.cc_rx_ce_pkts"] == {"mlx5_1/1": 1 << 33}
    assert first.values["rdma.congestion"] == {"mlx5_1/1": 1 << 33}
    assert "rdma.hw_counters.cc_tx_cnp_pkts" not in first.values
    assert "rdma.hw_counters.cc_rx_ce_pkts" not in later.values
    assert later.values["rdma.hw_counters.out_of_buffer"] == {"mlx5_1/1": 9}


def test_a_port_with_none_switched_on_is_not_asked_for_its_counters(kernel, tmp_path):
    write(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
    kernel.answers[STATUS, 0] = [nest(80, state("cc_rx_ce_pkts", 0))]
    rdma = RdmaCollector(str(tmp_path), kernel=lambda: kernel.link)

    readings = [rdma.collect(now) for now in (0.0, 11.0, 22.0)]

    assert kernel.asked == [(GET, None), (STATUS, 0)]
    assert not [r.failed for r in readings if r.failed]


def test_an_answer_that_is_cut_off_is_read_as_far_as_it_goes(kernel):
    for cut in range(len(BOUND)):
        kernel.answers[STAT_GET, 0] = [BOUND[:cut]]

        assert len(kernel.link.queue_pairs(0)) <= 2, cut
