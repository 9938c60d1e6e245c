"""What `rankdeck export` tells of this machine, against a real node_exporter;
and what its best known dashboard draws.
"""

import asyncio
import shutil
import subprocess
import time
import urllib.request
from contextlib import contextmanager

import pytest
from tests.support.ports import free_port, wait_for_port
from tests.support.programs import search_path
from tests.support.scrapes import whole

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.series import is_offered
from rankdeck.prometheus.exporter import Exporter
from rankdeck.state.fleet import Fleet
from rankdeck_agent.collectors import make_collectors
from rankdeck_agent.machine import describe_machine
from rankdeck_agent.sampler import Sampler
from rankdeck_agent.system_files import Tree
from rankdeck_agent.wire import Hello

parser = pytest.importorskip(
    "prometheus_client.parser", reason="prometheus-client is not installed"
)
PROGRAM = shutil.which("prometheus-node-exporter", path=search_path())
OWN = {"instance", "cluster"}
LOOSE = {"node_uname_info", "node_time_seconds"}
"""Series with labels or a value of the moment that differ."""
MOVING = ("node_memory_", "node_filesystem_", "node_sockstat_", "node_procs_", "node_load", "node_filefd_",
          "node_entropy_", "node_nf_conntrack_", "node_netstat_", "node_disk_io_now")  # fmt: skip
"""Gauges, which may go both ways between two readings."""

DRAWN = """
node_arp_entries node_boot_time_seconds node_context_switches_total
node_cooling_device_cur_state node_cooling_device_max_state node_cpu_guest_seconds_total
node_cpu_scaling_frequency_hertz node_cpu_scaling_frequency_max_hertz
node_cpu_scaling_frequency_min_hertz node_cpu_seconds_total node_disk_discard_time_seconds_total
node_disk_discarded_sectors_total node_disk_discards_completed_total
node_disk_discards_merged_total node_disk_flush_requests_time_seconds_total
node_disk_flush_requests_total node_disk_io_now node_disk_io_time_seconds_total
node_disk_io_time_weighted_seconds_total node_disk_read_bytes_total
node_disk_read_time_seconds_total node_disk_reads_completed_total node_disk_reads_merged_total
node_disk_write_time_seconds_total node_disk_writes_completed_total
node_disk_writes_merged_total node_disk_written_bytes_total node_entropy_available_bits
node_entropy_pool_size_bits node_filefd_allocated node_filefd_maximum
node_filesystem_avail_bytes node_filesystem_device_error node_filesystem_files
node_filesystem_files_free node_filesystem_free_bytes node_filesystem_readonly
node_filesystem_size_bytes node_forks_total node_hwmon_chip_names node_hwmon_fan_min_rpm
node_hwmon_fan_rpm node_hwmon_temp_celsius node_hwmon_temp_crit_alarm_celsius
node_hwmon_temp_crit_celsius node_hwmon_temp_crit_hyst_celsius node_hwmon_temp_max_celsius
node_interrupts_total node_intr_total node_kernel_hung_tasks node_load1 node_load15 node_load5
node_memory_Active_anon_bytes node_memory_Active_bytes node_memory_Active_file_bytes
node_memory_AnonHugePages_bytes node_memory_AnonPages_bytes node_memory_Buffers_bytes
node_memory_Cached_bytes node_memory_CommitLimit_bytes node_memory_Committed_AS_bytes
node_memory_DirectMap1G_bytes node_memory_DirectMap2M_bytes node_memory_DirectMap4k_bytes
node_memory_Dirty_bytes node_memory_HardwareCorrupted_bytes node_memory_HugePages_Free
node_memory_HugePages_Rsvd node_memory_HugePages_Surp node_memory_HugePages_Total
node_memory_Hugepagesize_bytes node_memory_Inactive_anon_bytes node_memory_Inactive_bytes
node_memory_Inactive_file_bytes node_memory_KernelStack_bytes node_memory_Mapped_bytes
node_memory_MemAvailable_bytes node_memory_MemFree_bytes node_memory_MemTotal_bytes
node_memory_Mlocked_bytes node_memory_NFS_Unstable_bytes node_memory_PageTables_bytes
node_memory_Percpu_bytes node_memory_SReclaimable_bytes node_memory_SUnreclaim_bytes
node_memory_ShmemHugePages_bytes node_memory_ShmemPmdMapped_bytes node_memory_Shmem_bytes
node_memory_Slab_bytes node_memory_SwapCached_bytes node_memory_SwapFree_bytes
node_memory_SwapTotal_bytes node_memory_Unevictable_bytes node_memory_VmallocChunk_bytes
node_memory_VmallocTotal_bytes node_memory_VmallocUsed_bytes node_memory_WritebackTmp_bytes
node_memory_Writeback_bytes node_memory_Zswap_bytes node_memory_Zswapped_bytes
node_netstat_Icmp_InErrors node_netstat_Icmp_InMsgs node_netstat_Icmp_OutMsgs
node_netstat_IpExt_InOctets node_netstat_IpExt_OutOctets node_netstat_TcpExt_ListenDrops
node_netstat_TcpExt_ListenOverflows node_netstat_TcpExt_SyncookiesFailed
node_netstat_TcpExt_SyncookiesRecv node_netstat_TcpExt_SyncookiesSent
node_netstat_TcpExt_TCPOFOQueue node_netstat_TcpExt_TCPRcvQDrop
node_netstat_TcpExt_TCPSynRetrans node_netstat_TcpExt_TCPTimeouts node_netstat_Tcp_ActiveOpens
node_netstat_Tcp_CurrEstab node_netstat_Tcp_InErrs node_netstat_Tcp_InSegs
node_netstat_Tcp_MaxConn node_netstat_Tcp_OutRsts node_netstat_Tcp_OutSegs
node_netstat_Tcp_PassiveOpens node_netstat_Tcp_RetransSegs node_netstat_UdpLite_InErrors
node_netstat_Udp_InDatagrams node_netstat_Udp_InErrors node_netstat_Udp_NoPorts
node_netstat_Udp_OutDatagrams node_netstat_Udp_RcvbufErrors node_netstat_Udp_SndbufErrors
node_network_carrier node_network_mtu_bytes node_network_receive_bytes_total
node_network_receive_compressed_total node_network_receive_drop_total
node_network_receive_errs_total node_network_receive_fifo_total node_network_receive_frame_total
node_network_receive_multicast_total node_network_receive_nohandler_total
node_network_receive_packets_total node_network_speed_bytes node_network_transmit_bytes_total
node_network_transmit_carrier_total node_network_transmit_colls_total
node_network_transmit_compressed_total node_network_transmit_drop_total
node_network_transmit_errs_total node_network_transmit_fifo_total
node_network_transmit_packets_total node_network_up node_nf_conntrack_entries
node_nf_conntrack_entries_limit node_power_supply_online node_pressure_cpu_waiting_seconds_total
node_pressure_io_stalled_seconds_total node_pressure_io_waiting_seconds_total
node_pressure_irq_stalled_seconds_total node_pressure_memory_stalled_seconds_total
node_pressure_memory_waiting_seconds_total node_processes_max_processes
node_processes_max_threads node_processes_pids node_processes_state node_processes_threads
node_procs_blocked node_procs_running node_schedstat_running_seconds_total
node_schedstat_timeslices_total node_schedstat_waiting_seconds_total
node_scrape_collector_duration_seconds node_scrape_collector_success node_sockstat_FRAG_inuse
node_sockstat_FRAG_memory node_sockstat_RAW_inuse node_sockstat_TCP_alloc
node_sockstat_TCP_inuse node_sockstat_TCP_mem node_sockstat_TCP_mem_bytes
node_sockstat_TCP_orphan node_sockstat_TCP_tw node_sockstat_UDPLITE_inuse
node_sockstat_UDP_inuse node_sockstat_UDP_mem node_sockstat_UDP_mem_bytes
node_sockstat_sockets_used node_softnet_dropped_total node_softnet_flow_limit_count_total
node_softnet_processed_total node_softnet_received_rps_total node_softnet_times_squeezed_total
node_systemd_socket_accepted_connections_total node_systemd_socket_current_connections
node_systemd_socket_refused_connections_total node_systemd_units node_tcp_connection_states
node_textfile_scrape_error node_time_seconds node_timex_estimated_error_seconds
node_timex_frequency_adjustment_ratio node_timex_loop_time_constant node_timex_maxerror_seconds
node_timex_offset_seconds node_timex_pps_calibration_total node_timex_pps_error_total
node_timex_pps_frequency_hertz node_timex_pps_jitter_seconds node_timex_pps_jitter_total
node_timex_pps_shift_seconds node_timex_pps_stability_exceeded_total
node_timex_pps_stability_hertz node_timex_sync_status node_timex_tai_offset_seconds
node_timex_tick_seconds node_udp_queues node_vmstat_oom_kill node_vmstat_pgfault
node_vmstat_pgmajfault node_vmstat_pgpgin node_vmstat_pgpgout node_vmstat_pswpin
node_vmstat_pswpout
"""
"""Series in the panels of Node Exporter Full (rfmoz/grafana-dashboards
4b1729d, prometheus/node-exporter-full.json).
"""
NOT_OFFERED = """
node_arp_entries node_cooling_device_cur_state node_cooling_device_max_state
node_cpu_scaling_frequency_hertz node_cpu_scaling_frequency_max_hertz
node_cpu_scaling_frequency_min_hertz node_hwmon_fan_min_rpm node_hwmon_temp_crit_alarm_celsius
node_hwmon_temp_crit_celsius node_hwmon_temp_crit_hyst_celsius node_hwmon_temp_max_celsius
node_interrupts_total node_kernel_hung_tasks node_network_carrier
node_network_receive_nohandler_total node_power_supply_online node_processes_max_processes
node_processes_max_threads node_processes_pids node_processes_state node_processes_threads
node_schedstat_running_seconds_total node_schedstat_timeslices_total
node_schedstat_waiting_seconds_total node_scrape_collector_duration_seconds
node_scrape_collector_success node_softnet_dropped_total node_softnet_flow_limit_count_total
node_softnet_processed_total node_softnet_received_rps_total node_softnet_times_squeezed_total
node_systemd_socket_accepted_connections_total node_systemd_socket_current_connections
node_systemd_socket_refused_connections_total node_systemd_units node_tcp_connection_states
node_textfile_scrape_error node_timex_estimated_error_seconds
node_timex_frequency_adjustment_ratio node_timex_loop_time_constant node_timex_maxerror_seconds
node_timex_offset_seconds node_timex_pps_calibration_total node_timex_pps_error_total
node_timex_pps_frequency_hertz node_timex_pps_jitter_seconds node_timex_pps_jitter_total
node_timex_pps_shift_seconds node_timex_pps_stability_exceeded_total
node_timex_pps_stability_hertz node_timex_sync_status node_timex_tai_offset_seconds
node_timex_tick_seconds node_udp_queues
"""
"""Those of them that need another collector (docs/prometheus.md)."""


def test_what_node_exporter_full_draws_is_offered_or_known_not_to_be() -> None:
    lacking = {name for name in DRAWN.split() if not is_offered(name)}

    assert lacking == set(NOT_OFFERED.split())
    assert len(DRAWN.split()) - len(lacking) >= 169


def by_name(text):
    """(name, labels) -> value of the series that node_exporter may have."""
    return {
        (
            sample.name,
            frozenset((k, v) for k, v in sample.labels.items() if k not in OWN),
        ): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("node_")
    }


@contextmanager
def node_exporter():
    port = free_port()
    process = subprocess.Popen(
        [PROGRAM, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL
    )
    try:
        wait_for_port(port, 60)
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        process.terminate()
        process.wait(30)


def asked(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return by_name(answer.read().decode())


def ours():
    """The text of one sample of this machine."""
    sampler = Sampler(make_collectors("/"))
    sampler.take(limit=30)
    time.sleep(0.2)
    collected = sampler.take(limit=30)
    cluster = Cluster(name="lab", nodes=(Node(name="n1"),))
    fleet = Fleet(cluster)
    inventory = {**describe_machine(Tree("/")), **collected.inventory}
    fleet.apply("n1", Hello("n1", True, 1.0, "b", "0.1.0", 1.0, inventory))
    fleet.apply("n1", collected.sample)
    return by_name(asyncio.run(whole(Exporter(cluster, fleet))))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not PROGRAM, reason="prometheus-node-exporter is not installed")
def test_series_and_values_are_those_of_a_real_node_exporter() -> None:
    with node_exporter() as url:
        before = asked(url)
        told = ours()
        after = asked(url)

    names = {name for name, _ in told} - LOOSE
    theirs = {key for key in before if key[0] in names}
    assert len(names) >= 100
    # By default node_exporter leaves out what is mounted below /dev;
    # before version 1.6 also two rows.
    later = {"node_netstat_TcpExt_TCPOFOQueue", "node_netstat_TcpExt_TCPRcvQDrop"}
    more = {key for key in told if key[0] in names - later and key not in before}
    assert [key for key in more if ("mountpoint", "/dev/shm") not in key[1]] == []
    assert len([key for key in theirs if key in told]) >= 150
    wrong = [
        (key, before[key], value, after[key])
        for key, value in told.items()
        if key in theirs and key in after and not within(key[0], before[key], value, after[key])
    ]
    assert wrong == []


def within(name, before, value, after) -> bool:
    """Whether a value lies between two of node_exporter, which moved
    meanwhile; rows are read every ten seconds.
    """
    least, most = min(before, after), max(before, after)
    slack = 0.25 * max(abs(least), abs(most)) + 64 if name.startswith(MOVING) else 0.01
    return least - slack <= value <= most + slack
