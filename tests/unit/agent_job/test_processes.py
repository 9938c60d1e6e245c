"""Words of /proc about a process."""

import pytest

from rankdeck_agent.job.processes import kernel_function


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("poll_schedule_timeout.constprop.0", "poll_schedule_timeout"),
        ("do_sys_poll.isra.0+0x4a/0x70", "do_sys_poll"),
        ("futex_do_wait", "futex_do_wait"),
        ("0", "0"),
        ("", ""),
    ],
)
def test_variants_that_a_compiler_made_of_a_kernel_function_are_one_place(
    word: str, name: str
) -> None:
    assert kernel_function(word) == name
