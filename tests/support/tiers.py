"""Which tests `make test` leaves to `make thorough`: CI runs both.

`make test` is for people: every capability once, with real programs. What takes long
and shows it again, in another runtime, launcher, version or place of the same fault, stands here; so do faults
that take minutes. Each file keeps a test that is not named here.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

THOROUGH: Mapping[str, Sequence[str]] = {
    "test_accept_judge": (
        "test_two_percent_bad_nodes_of_a_thousand_are_all_named_and_no_innocent_in_30_runs[range(1, 11)]",
        "test_two_percent_bad_nodes_of_a_thousand_are_all_named_and_no_innocent_in_30_runs[range(11, 21)]",
        "test_two_percent_bad_nodes_of_a_thousand_are_all_named_and_no_innocent_in_30_runs[range(21, 31)]",
    ),
    "test_accept_lab": (
        "test_a_slow_rail_is_told_from_one_port_of_a_node",
        "test_an_uplink_that_is_too_narrow_is_named_and_no_node",
        "test_what_moved_since_the_declared_run_is_named_also_where_that_was_carried_to",
        "test_a_pair_that_is_blocked_in_one_direction_is_named_and_not_accepted",
        "test_what_is_planted_is_named_and_nothing_else[path]",
        "test_what_is_planted_is_named_and_nothing_else[sends]",
        "test_what_is_planted_is_named_and_nothing_else[15-percent]",
        "test_what_is_planted_is_named_and_nothing_else[loses]",
        "test_what_is_planted_is_named_and_nothing_else[healthy]",
    ),
    "test_accept_programs": (
        "test_a_test_of_one_node_is_read_or_says_that_the_node_was_busy[stress-ng]",
    ),
    "test_accept_slurm": ("test_the_same_in_a_container",),
    "test_agent_installed": ("test_systemd_takes_the_units_as_they_are[False]",),
    "test_containers": (
        "test_mpi_crosses_the_nodes_in_rootless_podman",
        "test_mpi_crosses_the_nodes_in_podman_as_root",
        "test_mpi_crosses_the_nodes_in_docker",
        "test_mpi_crosses_the_nodes_in_apptainer_as_root",
        "test_mpi_crosses_the_nodes_in_apptainer[/srv/images/mpi5]",
        "test_torchrun_of_the_image_trains_across_the_nodes",
        "test_open_mpi_5_in_the_image_is_started_by_4",
        "test_open_mpi_of_another_patch_level_is_in_the_image",
        "test_cancel_leaves_nothing_of_docker",
        "test_cancel_leaves_nothing_of_containers_that_ignore_it[podman]",
        "test_cancel_leaves_nothing_of_containers_that_ignore_it[own-pids]",
        "test_a_shell_in_the_container_of_a_rank_opens_from_its_screen_and_holds_up_no_cancel[podman-*",
        "test_a_plain_rank_says_how_it_ended[podman]",
    ),
    "test_demo_faults": (
        "test_a_fault_is_told_with_level_check_and_exit_code[after seconds]",
        "test_a_fault_is_told_with_level_check_and_exit_code[at two looks]",
    ),
    "test_faults": (
        "test_the_culprit_is_named_and_explained[openmpi.segv]",
        "test_the_culprit_is_named_and_explained[openmpi.exit0]",
        "test_the_culprit_is_named_and_explained[openmpi.import]",
        "test_the_culprit_is_named_and_explained[openmpi.mpirun_killed]",
        "test_the_culprit_is_named_and_explained[mpich.segv]",
        "test_the_culprit_is_named_and_explained[mpich.abort]",
    ),
    "test_insight": (
        "test_a_replay_tells_the_same_story_again",
        "test_the_exported_script_of_an_mpi_job_gives_the_same",
    ),
    "test_job": (
        "test_cancel_ends_what_forks_faster_than_it_is_found[0.005-*",
        "test_cancel_without_a_cgroup_ends[four chains-stay]",
        "test_cancel_without_a_cgroup_ends[a chain of shells-leave]",
        "test_cancel_without_a_cgroup_ends[a daemon-stay]",
        "test_cancel_without_a_cgroup_ends[no variables-leave]",
        "test_cancel_ends_a_chain_that_has_lost_its_supervisor[supervisor killed-without]",
        "test_cancel_ends_a_chain_that_has_lost_its_supervisor[closed before-with variables]",
    ),
    "test_killed_console": (
        "test_jobs_knows_and_cancel_ends_what_a_killed_console_had_begun[0.0-9]",
        "test_jobs_knows_and_cancel_ends_what_a_killed_console_had_begun[0.05-1]",
        "test_jobs_knows_and_cancel_ends_what_a_killed_console_had_begun[0.1-9]",
        "test_jobs_knows_and_cancel_ends_what_a_killed_console_had_begun[0.4-9]",
        "test_jobs_knows_and_cancel_ends_what_a_killed_console_had_begun[0.6-1]",
        "test_jobs_knows_and_cancel_ends_what_a_killed_console_had_begun[1.0-9]",
    ),
    "test_kubernetes_attach": (
        "test_a_job_of_an_operator_has_a_pane_per_pod_and_ends_after_its_owner_was_named[pytorchjobs]",
        "test_a_job_of_an_operator_has_a_pane_per_pod_and_ends_after_its_owner_was_named[jobsets]",
        "test_a_job_of_an_operator_has_a_pane_per_pod_and_ends_after_its_owner_was_named[trainjobs]",
    ),
    "test_kubernetes_faults": (
        "test_a_job_that_its_queue_puts_aside_begins_again_and_shows_the_present_run",
        "test_a_token_that_expires_is_told_and_after_a_new_login_the_job_is_done",
    ),
    "test_lying_nodes": (
        "test_an_agent_that_never_sends_a_whole_frame_does_not_answer[import sys; *",
        "test_a_report_ends_though_a_node_tells_nothing_sound[import sys; *",
    ),
    "test_matrix_files": ("test_the_row_holds[fuzz-short]",),
    "test_matrix_nodes": (
        "test_it_holds[modes]",
        "test_it_holds[screen]",
        "test_it_holds[broker-logins]",
        "test_it_holds[lies]",
    ),
    "test_matrix_processes": (
        "test_it_holds[kill.telemetry]",
        "test_it_holds[kill.mpirun]",
        "test_it_holds[kill.shim]",
        "test_it_holds[start.cancel]",
        "test_it_holds[two.keep]",
        "test_it_holds[kill.rank]",
        "test_it_holds[two.cancels]",
        "test_it_holds[kill.run]",
    ),
    "test_matrix_space": (
        "test_nothing_is_lost_and_nothing_untrue_is_said[space.node-full]",
        "test_nothing_is_lost_and_nothing_untrue_is_said[space.garbage]",
        "test_nothing_is_lost_and_nothing_untrue_is_said[space.folder-removed]",
        "test_nothing_is_lost_and_nothing_untrue_is_said[space.log-emptied]",
        "test_nothing_is_lost_and_nothing_untrue_is_said[space.fail-64]",
    ),
    "test_matrix_wires": (
        "test_nothing_is_lost_and_nothing_untrue_is_said[wires.flap]",
        "test_nothing_is_lost_and_nothing_untrue_is_said[wires.deaf]",
    ),
    "test_mpi": (
        "test_mpirun_killed_with_sigkill_leaves_nothing_after_cancel[openmpi4]",
        "test_a_daemon_killed_with_sigkill_is_recorded_with_its_signal[openmpi4]",
        "test_a_rank_that_fails_is_told_from_those_that_mpirun_then_ends[openmpi5]",
        "test_nobody_is_told_that_shims_were_killed_where_mpirun_killed_the_ranks[openmpi4]",
    ),
    "test_parallel": ("test_a_worker_that_crashes_fails_one_test_and_all_others_run",),
    "test_reopened": (
        "test_a_stall_is_the_same_in_every_console_and_after_reopening",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[cancel-elsewhere]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[mpi-abort]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[node-lost]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[not-found]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[signal]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[traceback]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[lines]",
    ),
    "test_root_images": (
        "test_a_launch_brings_an_image_from_store_to_store_and_runs_it[docker]",
        "test_a_launch_brings_an_image_from_store_to_store_and_runs_it[podman]",
        "test_an_archive_is_pushed_into_the_stores[podman]",
        "test_what_is_no_archive_is_refused_by_the_store[docker]",
        "test_two_images_of_one_name_are_refused_with_both_digests[docker]",
        "test_a_sif_is_pushed_and_runs",
    ),
    "test_root_preflight": ("test_a_good_job_in_podman_has_nothing_against_it",),
    "test_root_slurm": (
        "test_torchrun_is_launched_in_images",
        "test_ranks_of_one_node_exchange_large_messages_between_their_images[openmpi4]",
    ),
    "test_root_slurm_accounting": ("test_a_deadline_that_passed_in_the_queue_is_told",),
    "test_root_slurm_cluster": (
        "test_a_controller_that_limits_rates_is_lived_with",
        "test_looking_all_the_time_costs_six_calls_a_minute",
        "test_slurms_health_check_drains_a_bad_node_with_our_reason_and_leaves_those_of_others",
    ),
    "test_root_slurm_ends": (
        "test_a_controller_that_is_down_ends_no_job",
        "test_a_controller_that_limits_calls_never_has_to_turn_us_away",
        "test_a_job_goes_on_elsewhere_when_its_node_failed",
        "test_a_job_that_was_preempted_and_ended_well_is_done",
        "test_a_time_limit_is_told_as_such",
        "test_a_preempted_job_that_is_not_queued_again_says_so",
    ),
    "test_secret_arguments": (
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-apptainer]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-singularity]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-podman]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-docker]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-enroot]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[mpi-singularity]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[mpi-docker]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[mpi-enroot]",
    ),
    "test_stalls": (
        "test_a_rank_that_raised_in_a_thread_and_hangs_is_named_with_its_words",
        "test_a_rank_that_sleeps_while_three_wait_in_a_collective_is_named[mpi]",
    ),
    "test_two_pis": ("test_both_are_busy_while_the_stencil_runs_and_its_mflops_are_read",),
    "test_words": (
        "test_a_real_launcher_gives_its_rank_every_byte[torchrun]",
        "test_an_exported_script_starts_and_ends_its_ranks_through_any_login_shell[/usr/bin/sh-*",
    ),
}
"""File -> its tests that are thorough; one that ends with `*` stands for all that begin so."""


def is_thorough(test: str) -> bool:
    """Whether the test with this id (`tests/unit/test_x.py::test_it[a]`) is left to `make thorough`."""
    file, _, name = test.partition("::")
    return any(
        name == one or (one.endswith("*") and name.startswith(one[:-1]))
        for one in THOROUGH.get(PurePosixPath(file).stem, ())
    )
