"""What programs of Debian and of PyPI say when they fail, and what is quoted of it."""

import pytest

from rankdeck.rules.ends import LAUNCHER_ENDINGS, meaning_of
from rankdeck.rules.messages import explain_end, signal_in_report
from tests.unit.test_jobs_state import Feed
from tests.unit.test_root_cause import rank

MISSING = "a file is missing on that node, or cannot be read"
SAID = {
    # OpenFOAM, CP2K, GROMACS, Guile (MPB, Meep)
    '[2] cannot find file "/run/case/processor2/0/U"': MISSING,
    "* \\___/    The specified OLD file <BASIS_SETX> cannot be opened. It does not *": MISSING,
    "File input/output error:": MISSING,
    'ERROR: In procedure open-file: No such file or directory: "ring.ctl"': MISSING,
    "new cannot satisfy memory request.": "no memory was left for it on that node",
}
# XGBoost, LightGBM
LOST = "XGBoost lost another worker"
SAID |= {
    "- [allgather.cc:50|02:41:09]: Ring allgather failed, current iteration:1": LOST,
    "- [socket.h:79|02:41:09]: Poll error condition:Success code:0": LOST,
    "[LightGBM] [Fatal] Binding port 29873 failed": (
        "the port is taken by another process on that node"
    ),
    "[LightGBM] [Fatal] Machine list file doesn't contain the local machine": (
        "this rank is not in LightGBM's list of machines"
    ),
}
# transformers, safetensors
SAID |= {
    "[rank1]: ValueError: Can't find a valid checkpoint at ckpt": MISSING,
    "[rank0]: safetensors._safetensors_rust.SafetensorError: Error while serializing: I/O error: "
    "No space left on device (os error 28)": "a disk is full on that node",
}
HEALTHY = (
    "GROMACS: the file will not be read again",
    "no restart file found, starting from scratch",
    "the trajectory file could be opened",
    "Reading file topol.tpr, VERSION 2022.5-Debian_2022.5_2 (single precision)",
)


@pytest.mark.parametrize(("line", "means"), SAID.items())
def test_a_line_of_these_programs_is_explained(line: str, means: str) -> None:
    assert [one.means for one in explain_end([line])] == [means]


@pytest.mark.parametrize("line", HEALTHY)
def test_what_they_say_while_all_is_well_is_not(line: str) -> None:
    assert not explain_end([line])


def why(*said: str, code: int | None = 1, signal: int | None = None) -> str:
    end = rank(1, 20.0, code, signal=signal, said=said)
    return meaning_of(end, LAUNCHER_ENDINGS["openmpi4"], 20.0).why


def test_the_frame_of_a_stack_is_not_quoted_as_an_error() -> None:
    said = (
        "./solver: cannot carry on with step 7",
        "[n2:00634] *** Process received signal ***",
        "[n2:00634] Signal: Aborted (6)",
        "[n2:00634] *** End of error message ***",
    )

    assert "cannot carry on" in why(*said, code=None, signal=6)
    assert "End of error" not in why(*said, code=None, signal=6)


def test_a_file_that_stands_below_its_heading_is_quoted_with_it() -> None:
    said = ("File input/output error:", "topol.tpr", "The file could not be opened.")

    assert "File input/output error: topol.tpr" in why(*said)


ABORT = (
    " *******************************************************************************",
    " * [ABORT]                                                                     *",
    " *  \\___/             found an unknown keyword EPS_SFC in section SCF          *",
    " *  O/|                                                                        *",
    " * / \\                                               input/input_parsing.F:246 *",
    " *******************************************************************************",
    " ===== Routine Calling Stack =====",
    "            2 section_vals_parse",
    "            1 read_input",
)


def test_the_title_of_a_stack_is_not_quoted_but_what_stands_in_the_box() -> None:
    assert "found an unknown keyword EPS_SFC in section SCF" in why(*ABORT)
    aborted = meaning_of(
        rank(1, 20.0, 1, said=(*ABORT, "MPI_ABORT was invoked on rank 1 in communicator")),
        LAUNCHER_ENDINGS["openmpi4"],
        20.0,
    )
    assert "unknown keyword EPS_SFC" in aborted.why


def test_a_drawn_line_is_no_sentence() -> None:
    said = ("step three of four", "===== Routine Calling Stack =====")
    aborted = rank(1, 20.0, 1, said=(*said, "MPI_ABORT was invoked on rank 1 in communicator"))

    told = meaning_of(aborted, LAUNCHER_ENDINGS["openmpi4"], 20.0).why
    assert "it last said: step three of four" in told


def test_why_it_called_mpi_abort_is_told_before_that_it_did() -> None:
    said = (
        "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD",
        "[2] --> FOAM FATAL ERROR:",
        '[2] cannot find file "/run/case/processor2/0/U"',
    )

    assert explain_end(said)[0].means == MISSING


def test_a_launcher_that_crashes_later_does_not_explain_the_end_of_a_rank() -> None:
    feed = Feed()
    feed.start_all()
    feed.write(-1, "[n1:00024] *** Process received signal ***\n")
    feed.write(-1, "[n1:00024] Signal: Segmentation fault (11)\n")
    feed.exit(2, None, 9, at=2.0)
    feed.close()

    assert feed.job.first_failure.rank == 2
    assert [one.means for one in feed.job.first_failure.explained] == [
        "it was killed (SIGKILL): by whom is not known"
    ]


def test_the_report_of_the_same_signal_still_does() -> None:
    assert signal_in_report("[n1:00024] Signal: Segmentation fault (11)") == 11
    assert signal_in_report("srun: error: n1: task 3: Segmentation fault") is None
