"""RDMA counters by their kernel names: which are added up to common
metrics, and which saturate or wrap around.
"""

from collections.abc import Mapping

WORDS = 4
"""The kernel counts the data of a port in words of four bytes."""

# Metric -> rows of kernel name -> factor; the first row with a name that exists is used.
BYTES: tuple[tuple[str, tuple[Mapping[str, int], ...]], ...] = (
    ("rdma.rx", (
        {"port_rcv_data_64": WORDS},  # counters_ext of older kernels, where the plain ones stick: mlx4
        {"port_rcv_data": WORDS},  # all with port counters: mlx4, mlx5, hfi1, qib
        {"rx_bytes": 1},  # bnxt_re, efa, mana
        {"rx_bytes_cnt": 1},  # erdma
        {"rx_rdma_ucast_bytes": 1, "rx_rdma_mcast_bytes": 1},  # ionic
        {"ip4InOctets": 1, "ip6InOctets": 1},  # irdma
    )),
    ("rdma.tx", (
        {"port_xmit_data_64": WORDS},
        {"port_xmit_data": WORDS},
        {"tx_bytes": 1},
        {"tx_bytes_cnt": 1},
        {"tx_rdma_ucast_bytes": 1, "tx_rdma_mcast_bytes": 1},
        {"ip4OutOctets": 1, "ip6OutOctets": 1},
    )),
)  # fmt: skip


def _names(text: str, *with_spaces: str) -> tuple[str, ...]:
    return (*text.split(), *with_spaces)


SUMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Without *_cqe_error: every normal end of a program flushes requests.
    # Without discards: they mean congestion.
    ("rdma.errors", _names(
        "symbol_error link_error_recovery link_downed port_rcv_errors port_rcv_remote_physical_errors "
        "port_xmit_constraint_errors port_rcv_constraint_errors "
        "local_link_integrity_errors excessive_buffer_overrun_errors "
        "req_transport_retries_exceeded req_rnr_retries_exceeded rx_icrc_encapsulated "
        "max_retry_exceeded unrecoverable_err local_qp_op_err remote_access_err rx_roce_errors "
        "retry_exceeded_err retry_rnr_exceeded_err send_err sq_num_tree sq_num_rree "
        "vport_req_transport_retries_exceeded vport_req_rnr_retries_exceeded "
        "tcpInProtoErrors tcpInOptErrors InOptErrors InProtoErrors rxVlanErrors "
        "rdma_read_wr_err rdma_write_wr_err unresponsive_remote_events "
        "tx_roce_errors req_tx_retry_excd_err req_tx_loc_oper_err resp_rx_loc_oper_err "
        "requester_retries_exceeded requester_rnr_nak_retries_exceeded total_fatal_err general_hw_err "
        "rx_err_pkt rx_error_pkt tx_err_pkt tx_error_pkt",
        "CRC errors",
    )),
    ("rdma.phys_errors", _names(
        "symbol_error local_link_integrity_errors excessive_buffer_overrun_errors port_rcv_errors "
        "port_rcv_remote_physical_errors rx_icrc_encapsulated",
        "CRC errors",
    )),
    ("rdma.link_downs", _names("link_downed")),
    ("rdma.link_recoveries", _names("link_error_recovery")),
    ("rdma.retries_exhausted", _names(
        "req_transport_retries_exceeded req_rnr_retries_exceeded max_retry_exceeded "
        "retry_exceeded_err retry_rnr_exceeded_err unresponsive_remote_events impaired_remote_conn_events "
        "req_tx_retry_excd_err requester_retries_exceeded requester_rnr_nak_retries_exceeded "
        "sq_num_tree sq_num_rree vport_req_transport_retries_exceeded vport_req_rnr_retries_exceeded"
    )),
    ("rdma.retx", _names(
        "local_ack_timeout_err packet_seq_err out_of_sequence implied_nak_seq_err duplicate_request "
        "roce_adp_retrans to_retransmits seq_err_naks_rcvd oos_drop_count dup_req retrans_pkts "
        "tcpRetransSegs RetransSegs RTO completer_retry_err out_of_seq_request rcvd_seq_err "
        "missing_resp tx_rdma_retx_pkts req_rx_pkt_seq_err req_rx_impl_nak_seq_err resp_rx_dup_request "
        "resp_rx_outouf_seq requester_timeout requester_oos_nak requester_implicit_nak responder_oos "
        "responder_dup_request ip4RetransSegs ip6RetransSegs rq_num_oos sq_num_oos rq_num_dup sq_num_to "
        "vport_local_ack_timeout_err vport_packet_seq_err vport_out_of_sequence vport_implied_nak_seq_err "
        "vport_duplicate_request vport_roce_adp_retrans",
        "Nak Sequence Error", "Nak Sequence Error Implied", "Rcvd Out of order packets",
    )),
    ("rdma.timeouts", _names("local_ack_timeout_err to_retransmits RTO retrans_timeout_events roce_adp_retrans_to "
        "tx_rdma_ack_timeout requester_timeout sq_num_to vport_local_ack_timeout_err vport_roce_adp_retrans_to")),
    ("rdma.not_ready", _names(
        "out_of_buffer rnr_nak_retry_err rnr_naks_rcvd rx_out_of_buffer send_rnr_err rcvd_rnr_err "
        "req_rx_rnr_retry_err resp_rx_outof_buf resp_tx_rnr_retry_err requester_rnr_nak responder_rnr_nak "
        "rq_num_rnr sq_num_rnr vport_out_of_buffer vport_rnr_nak_retry_err",
        "RNR sent", "RNR received",
    )),
    ("rdma.congestion", _names(
        "np_ecn_marked_roce_packets rp_cnp_handled roce_slow_restart_cnps vport_roce_slow_restart_cnps RxECNMrkd cnpHandled rx_ecn_marked rx_cnp "
        "rx_ecn_marked_pkts rx_cnp_pkts rx_rdma_ecn_pkts rx_rdma_cnp_pkts received_cnps rx_cnp_pkt "
        "cc_rx_ce_pkts cc_rx_cnp_pkts"
    )),
    ("rdma.discards", _names(
        "port_xmit_discards rx_roce_discards tx_roce_discards rx_drops ip4InDiscards ip6InDiscards "
        "rx_rdma_mtu_discard_pkts rx_disable_drop_cnt rx_bps_limit_drop_cnt rx_pps_limit_drop_cnt "
        "tx_disable_drop_cnt tx_bps_limit_drop_cnt tx_pps_limit_drop_cnt"
    )),
    ("rdma.xmit_wait", _names("port_xmit_wait")),
)  # fmt: skip
"""Metric -> the counters of all drivers that are added up."""

# Where each driver defines its names, below drivers/infiniband in the Linux source:
# all with port counters: core/sysfs.c
# bnxt_re: hw/bnxt_re/hw_counters.c (Broadcom's own driver has mlx5's names for some)
# cxgb4: hw/cxgb4/provider.c
# efa: hw/efa/efa_verbs.c
# erdma: hw/erdma/erdma_verbs.c
# hns: hw/hns/hns_roce_main.c
# ionic: hw/ionic/ionic_hw_stats.c (asks the firmware for names:
# those that AMD's node-scraper lists)
# irdma: hw/irdma/verbs.c (two spellings: with ip4/tcp/iw before, and
# since GEN3 without and with spaces)
# mana: hw/mana/counters.c
# mlx4: hw/mlx4/main.c (rq_num_*, sq_num_*; counters_ext only with
# Mellanox's own driver (MLNX_OFED))
# mlx5: hw/mlx5/counters.c (vport_* on representors; cc_* and rdma_*
# are optional: collectors/rdma.py)
# rxe: sw/rxe/rxe_hw_counters.c
_WIDTHS: Mapping[int, str] = {
    4: "local_link_integrity_errors excessive_buffer_overrun_errors",
    8: "link_error_recovery link_downed port_xmit_constraint_errors port_rcv_constraint_errors",
    16: "symbol_error port_rcv_errors port_rcv_remote_physical_errors port_rcv_switch_relay_errors "
        "port_xmit_discards VL15_dropped",
    32: "port_xmit_wait port_rcv_data port_xmit_data port_rcv_packets port_xmit_packets",
}  # fmt: skip
TOPS: Mapping[str, int] = {
    name: (1 << bits) - 1 for bits, names in _WIDTHS.items() for name in names.split()
}
"""Kernel name -> value at which a counter in a port's `counters/` saturates
(linux drivers/infiniband/core/sysfs.c).
"""

_QUEUES = _names(
    "rx_write_requests rx_read_requests rx_atomic_requests rx_dct_connect out_of_buffer out_of_sequence "
    "duplicate_request rnr_nak_retry_err packet_seq_err implied_nak_seq_err local_ack_timeout_err "
    "resp_local_length_error resp_cqe_error req_cqe_error req_remote_invalid_request "
    "req_remote_access_errors resp_remote_access_errors resp_cqe_flush_error req_cqe_flush_error "
    "req_transport_retries_exceeded req_rnr_retries_exceeded roce_adp_retrans roce_adp_retrans_to "
    "roce_slow_restart roce_slow_restart_cnps roce_slow_restart_trans"
)
_DIAGNOSTICS = _names(
    "rq_num_lle sq_num_lle rq_num_lqpoe sq_num_lqpoe rq_num_lpe sq_num_lpe rq_num_wrfe sq_num_wrfe sq_num_mwbe "
    "sq_num_bre sq_num_rire rq_num_rire sq_num_rae rq_num_rae sq_num_roe sq_num_tree sq_num_rree rq_num_rnr "
    "sq_num_rnr rq_num_oos sq_num_oos rq_num_dup sq_num_to num_cqovf rq_num_udsdprd"
)
WRAPS = frozenset((*_QUEUES, *(f"vport_{name}" for name in _QUEUES), *_DIAGNOSTICS))
"""Counters of 32 bits that wrap around: mlx5's queue counters (its own, and
vport_* of a representor), mlx4's diagnostics.
"""

TWINS: Mapping[str, str] = {
    "cc_rx_ce_pkts": "np_ecn_marked_roce_packets",
    "cc_rx_cnp_pkts": "rp_cnp_handled",
}
"""Counter -> another one that counts the same packets; the first
is in no sum if the other exists.
"""

COUNTED: Mapping[str, frozenset[str]] = {
    name: frozenset(metric for metric, names in SUMS if name in names)
    for _, names in SUMS
    for name in names
}
"""Kernel name -> the common metrics that it is part of."""
