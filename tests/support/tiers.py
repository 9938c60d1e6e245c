"""Which tests `make test` leaves to `make thorough`: CI runs both.

`make test` is for developers: every capability once, with real programs, in about ten minutes. Long
tests that go further are left out: another runtime, launcher or version, another fault or accident,
the matrix.
"""

from collections.abc import Iterable, Mapping, Sequence

THOROUGH: Mapping[str, Sequence[str]] = {
    "unit/test_accept_judge": (
        "test_a_thousand_nodes_have_each_fault_named_within_a_dozen_rounds[none]",
        "test_a_thousand_nodes_have_each_fault_named_within_a_dozen_rounds[wrong MTU]",
        "test_a_thousand_nodes_have_each_fault_named_within_a_dozen_rounds[half speed]",
        "test_a_thousand_nodes_have_each_fault_named_within_a_dozen_rounds[uplink]",
        "test_two_percent_bad_nodes_of_a_thousand_are_all_named_and_no_innocent_in_30_runs[range(1, 11)]",
        "test_two_percent_bad_nodes_of_a_thousand_are_all_named_and_no_innocent_in_30_runs[range(11, 21)]",
        "test_two_percent_bad_nodes_of_a_thousand_are_all_named_and_no_innocent_in_30_runs[range(21, 31)]",
    ),
    "integration/test_accept_programs": (
        "test_a_test_of_one_node_is_read_or_says_that_the_node_was_busy[stress-ng]",
    ),
    "unit/test_accept_runner": ("test_a_pair_that_fails_says_what_the_ports_of_both_counted",),
    "integration/test_accept_slurm": ("test_the_same_in_a_container",),
    "ui/test_acceptance_screen": (
        "test_jobs_are_kept_away_from_a_node_with_a_reason_for_a_while_and_let_back[size0]",
    ),
    "integration/test_agent_pythons": (
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.7]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.8]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.9]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.10]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.11]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.12]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.13]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.14]",
    ),
    "integration/test_agent_installed": ("test_systemd_takes_the_units_as_they_are[False]",),
    "ui/test_contrast": (
        "test_every_screen_can_be_read[light]",
        "test_every_screen_can_be_read[high-contrast]",
    ),
    "integration/test_demo_faults": (
        "test_a_fault_is_told_with_level_check_and_exit_code[after seconds]",
        "test_a_fault_is_told_with_level_check_and_exit_code[at two looks]",
    ),
    "ui/test_footers": (
        "test_each_key_of_the_footer_does_something[one rank, searched]",
        "test_each_key_of_the_footer_does_something[one rank of an ended job]",
        "test_each_key_of_the_footer_does_something[merged]",
        "test_each_key_of_the_footer_does_something[replay]",
        "test_each_key_of_the_footer_does_something[wall of an ended job]",
        "test_each_key_of_the_footer_does_something[collapsed]",
        "test_each_key_of_the_footer_does_something[diff]",
        "test_each_key_of_the_footer_does_something[wall of a page]",
        "test_each_key_of_the_footer_does_something[fleet paused]",
        "test_each_key_of_the_footer_does_something[fleet with trouble]",
        "test_each_key_of_the_footer_does_something[jobs ended]",
    ),
    "integration/test_full_head": (
        "test_an_open_history_writes_again_by_itself",
        "test_the_jobs_of_before_are_listed_and_one_line_says_what_is_wrong[read_only]",
        "test_the_jobs_of_before_are_listed_and_one_line_says_what_is_wrong[no_inodes]",
        "test_a_broken_history_on_a_full_disk_is_kept_aside",
    ),
    "unit/test_huge_log": (
        "test_the_output_of_a_job_that_another_console_saw_end_comes_though_its_node_was_silent",
    ),
    "integration/job/test_job": (
        "test_cancel_without_a_cgroup_ends[four chains-leave]",
        "test_cancel_ends_a_chain_that_has_lost_its_supervisor[closed before-without]",
        "test_cancel_ends_what_forks_faster_than_it_is_found[0-session-without]",
        "test_cancel_ends_a_rank_that[drops its environment]",
        "test_cancel_ends_what_forks_faster_than_it_is_found[0.005-*",
        "test_cancel_without_a_cgroup_ends[four chains-stay]",
        "test_cancel_without_a_cgroup_ends[a chain of shells-leave]",
        "test_cancel_without_a_cgroup_ends[a daemon-stay]",
        "test_cancel_without_a_cgroup_ends[no variables-leave]",
        "test_cancel_ends_a_chain_that_has_lost_its_supervisor[supervisor killed-without]",
        "test_cancel_ends_a_chain_that_has_lost_its_supervisor[closed before-with variables]",
    ),
    "ui/test_keys": (
        "test_every_key_of_the_job_screen_can_be_pressed_in_every_view[M]",
        "test_every_key_of_the_job_screen_can_be_pressed_in_every_view[c]",
    ),
    "integration/test_lying_nodes": (
        "test_an_agent_that_never_sends_a_whole_frame_does_not_answer[import sys; *",
        "test_a_report_ends_though_a_node_tells_nothing_sound[import sys; *",
    ),
    "integration/job/test_mpi": (
        "test_mpirun_killed_with_sigkill_leaves_nothing_after_cancel[openmpi4]",
        "test_a_daemon_killed_with_sigkill_is_recorded_with_its_signal[openmpi4]",
        "test_a_rank_that_fails_is_told_from_those_that_mpirun_then_ends[openmpi5]",
        "test_nobody_is_told_that_shims_were_killed_where_mpirun_killed_the_ranks[openmpi4]",
    ),
    "unit/agent/test_nvidia": (
        "test_before_hopper_bytes_over_nvlink_and_pcie_come_from_counters",
        "test_instances_of_a_divided_gpu_tell_what_each_did",
    ),
    "hygiene/test_parallel": ("test_a_worker_that_crashes_fails_one_test_and_all_others_run",),
    "integration/test_prometheus_scrape": (
        "test_what_prometheus_took_in_comes_back_as_the_past_of_each_node",
    ),
    "integration/test_reopened": (
        "test_a_stall_is_the_same_in_every_console_and_after_reopening",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[cancel-elsewhere]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[mpi-abort]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[node-lost]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[not-found]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[signal]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[traceback]",
        "test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening[lines]",
    ),
    "integration/test_setup": ("test_setup_takes_all_from_a_folder_without_network",),
    "integration/test_secret_arguments": (
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-none]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-apptainer]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-singularity]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-podman]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-docker]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[torchrun-enroot]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[mpi-singularity]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[mpi-docker]",
        "test_the_ranks_see_a_variable_and_no_argument_list_does[mpi-enroot]",
    ),
    "integration/test_ssh_jobs": (
        "test_a_job_whose_run_folder_is_gone_for_a_while_is_named_and_goes_on",
        "test_cancel_waits_no_longer_than_its_time_for_a_link_that_dropped_and_stays_silent",
    ),
    "integration/test_two_pis": (
        "test_both_are_busy_while_the_stencil_runs_and_its_mflops_are_read",
    ),
    "contracts/test_words": (
        "test_an_exported_script_starts_and_ends_its_ranks_through_any_login_shell[/usr/bin/bash-*",
        "test_a_real_launcher_gives_its_rank_every_byte[plain]",
        "test_a_real_launcher_gives_its_rank_every_byte[torchrun]",
        "test_an_exported_script_starts_and_ends_its_ranks_through_any_login_shell[/usr/bin/sh-*",
    ),
}
"""File below `tests` -> its thorough tests; a name that ends with `*`
means all tests that begin with it.
"""


KEPT: Mapping[str, Sequence[str]] = {
    "contracts/test_kubernetes": (
        "test_a_job_runs_and_every_line_of_every_rank_is_shown",
        "test_a_detached_job_is_followed_*",
        "test_mpi_runs_on_every_host_and_its_lines_are_told_apart[openmpi4]",
        "test_a_failed_rank_is_named_*",
        "test_a_job_that_the_server_does_not_take_*",
        "test_a_dry_run_creates_nothing",
        "test_acceptance_says_*",
    ),
    "integration/job/test_activity": (
        "test_the_file_goes_*",
        "test_a_rank_that_failed_*",
    ),
    "integration/slurm/test_root_slurm": (
        "test_mpi_ranks_are_started_*",
        "test_cancel_takes_*",
        "test_a_plain_rank_*",
    ),
    "integration/slurm/test_root_slurm_accounting": ("test_jobs_of_everybody_*",),
    "integration/slurm/test_root_slurm_arrays": ("test_each_task_*",),
    "integration/slurm/test_root_slurm_cluster": (
        "test_a_node_is_drained_*",
        "test_who_may_not_*",
    ),
    "integration/slurm/test_root_slurm_ends": (
        "test_a_memory_limit_*",
        "test_a_job_that_is_held_*",
        "test_what_slurm_refuses_*",
    ),
    "integration/slurm/test_root_slurm_inside": ("test_the_first_step_*",),
    "integration/test_accept_lab": (
        "test_what_is_planted_is_named_and_nothing_else[half]",
        "test_another_mtu_*",
    ),
    "integration/test_agent_pythons": (
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.7]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.8]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.9]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.10]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.11]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.12]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.13]",
        "test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs[3.14]",
    ),
    "integration/test_agent_installed": (
        "test_install_*",
        "test_another_agent_*",
        "test_systemd_takes_the_units_as_they_are[True]",
    ),
    "integration/test_containers": (
        "test_mpi_crosses_the_nodes_in_apptainer[/srv/images/mpi5.sif]",
        "test_cancel_leaves_nothing_of_containers_that_ignore_it[sif]",
    ),
    "integration/test_dependencies": (),
    "integration/test_faults": (
        "test_the_culprit_is_named_and_explained[openmpi.raise]",
        "test_a_cluster_ends_*",
    ),
    "integration/test_hands": (
        "test_a_file_is_copied_*",
        "test_s_lends_*",
        "test_equal_output_*",
        "test_ctrl_c_ends_it_*",
        "test_bad_input_*",
        "test_the_largest_*",
    ),
    "integration/test_images": (
        "test_a_launch_copies_*",
        "test_a_copy_that_*",
        "test_a_node_without_room_*",
    ),
    "integration/test_insight": (
        "test_a_failure_is_explained_*",
        "test_a_launcher_that_fails_*",
    ),
    "integration/test_killed_console": ("test_a_console_killed_*",),
    "integration/test_kubernetes_attach": ("test_a_job_of_others_*",),
    "integration/test_kubernetes_claim": ("test_lines_that_the_api_*",),
    "integration/test_kubernetes_faults": (
        "test_a_job_goes_on_without_a_line_lost_when_this_is_killed[the keeper]",
    ),
    "integration/test_kubernetes_hostile": (
        "test_a_silent_node_*",
        "test_hostile_lines_*",
        "test_an_answer_*",
    ),
    "integration/test_kubernetes_keeper": (
        "test_no_line_is_lost_or_doubled_when[kubectl is killed]",
        "test_a_cancel_names_*",
        "test_a_keeper_that_is_killed_*",
        "test_all_is_kept_*",
        "test_a_cancel_leaves_*",
        "test_what_keeps_a_job_from_starting_is_told[image]",
    ),
    "integration/test_kubernetes_login": ("test_a_job_runs_*",),
    "integration/test_kubernetes_rights": ("test_a_cancel_that_*",),
    "integration/test_lab_jobs": (
        "test_torchrun_trains_*",
        "test_a_cut_link_*",
        "test_mpirun_starts_ranks_on_every_node[rankdeck-openmpi5-*",
        "test_every_node_*",
    ),
    "integration/test_log_views": (
        "test_equal_lines_*",
        "test_the_screen_reads_*",
    ),
    "integration/test_main_path": (
        "test_acceptance_measures_*",
        "test_a_job_outlives_*",
        "test_a_verb_whose_reader_has_gone_ends_and_the_job_goes_on[verb1]",
        "test_an_mpi_job_*",
        "test_the_first_failure_*",
        "test_status_hears_*",
        "test_cancel_leaves_*",
    ),
    "integration/test_matrix_files": (),
    "integration/test_matrix_nodes": (),
    "integration/test_matrix_processes": (),
    "integration/test_matrix_space": (),
    "integration/test_matrix_wires": (),
    "integration/test_minimal_debian": (),
    "integration/test_preflight": (
        "test_a_good_mpi_job_*",
        "test_every_rank_zero_*",
        "test_a_port_that_is_taken_*",
        "test_run_refuses_*",
        "test_a_program_that_one_node_lacks_*",
        "test_doctor_asks_*",
        "test_two_versions_*",
        "test_a_missing_working_*",
    ),
    "integration/test_root_images": (),
    "integration/test_root_preflight": (
        "test_a_node_where_the_runtime_*",
        "test_a_good_job_in_a_container_has_nothing_against_it[/srv/images/mpi5.sif]",
        "test_ranks_that_will_*",
    ),
    "integration/test_run_tells": ("test_an_attach_*",),
    "integration/test_slurm_answers": (
        "test_accounting_that_*",
        "test_a_job_of_this_cluster_*",
    ),
    "integration/test_spine": tuple(
        f"{test}[{python}]"
        for python in ("this one", "Debian's")
        for test in (
            "test_every_node_of_the_demo_is_heard",
            "test_an_mpi_job_greets_from_every_rank",
            "test_a_job_that_fails_names_the_rank_and_its_exit_code",
            "test_a_cancel_leaves_nothing",
            "test_the_console_stays_and_ends_by_its_key",
        )
    ),
    "integration/test_ssh_table": tuple(
        f"test_a_login_comes_to[{row}-{way}]"
        for way, rows in {
            "asyncssh": (
                "no port forwarding",
                "a forced command",
                "a second factor",
                "a home that is full",
                "a jump host",
            ),
            "openssh": (
                "as it is",
                "one session",
                "no keys",
                "start-up files that talk",
                "another host key",
            ),
        }.items()
        for row in rows
    ),
    "integration/test_stalls": ("test_a_stopped_rank_*",),
}
"""File below `tests` -> the tests that `make test` runs; all others of that file are thorough."""


def is_thorough(test: str) -> bool:
    """Whether the test with this id
    (`tests/unit/test_x.py::test_it[a]`) is left to `make thorough`.
    """
    file, _, name = test.partition("::")
    path = file.removeprefix("tests/").removesuffix(".py")
    return not named(name, KEPT[path]) if path in KEPT else named(name, THOROUGH.get(path, ()))


def named(test: str, names: Iterable[str]) -> bool:
    """Whether a test is among them, by its name without the file."""
    return any(test == one or (one.endswith("*") and test.startswith(one[:-1])) for one in names)
