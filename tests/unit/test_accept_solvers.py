"""Outputs of HPCG and of the NAS Parallel Benchmarks: a rate counts
only where the program calls it right.
"""

import pytest

from tests.support.outputs import read, said, values

HPCG = """\
HPCG-Benchmark
version=3.1
Machine Summary::Distributed Processes=4
GFLOP/s Summary::Raw Total=9.75
Final Summary=
Final Summary::HPCG result is VALID with a GFLOP/s rating of=9.4321
Final Summary::Results are valid but execution time (sec) is=31.2
"""
HPCG_2 = """\
HPCG-Benchmark version: 2.4
Distributed Processes: 16
__________ Final Summary __________:
  HPCG result is VALID with a GFLOP/s rating of: 7.5
"""
NPB = """\

 NAS Parallel Benchmarks 3.4 -- CG Benchmark

 Size:      14000 (class A)
 VERIFICATION SUCCESSFUL


 CG Benchmark Completed.
 Class           =                        A
 Size            =                    14000
 Time in seconds =                     0.70
 Total processes =                        4
 Mop/s total     =                  2134.55
 Mop/s/process   =                   533.64
 Operation type  =           floating point
 Verification    =               SUCCESSFUL
 Version         =                    3.4.2
"""


def test_a_valid_result_of_hpcg_is_the_rate_of_its_last_summary() -> None:
    (new,), (old,) = read("hpcg", HPCG), read("hpcg", HPCG_2)

    assert (new.value, new.unit, new.ranks) == (9.4321, "GFLOP/s", 4)
    assert (old.value, old.ranks) == (7.5, 16)
    assert values("hpcg", HPCG + HPCG.replace("9.4321", "8.1")) == [9.4321, 8.1]


def test_an_invalid_or_cut_result_of_hpcg_has_no_value() -> None:
    invalid = HPCG.replace("is VALID with a GFLOP/s rating of=9.4321", "is=INVALID.")

    assert said("hpcg", invalid) == [
        ("failed", "wrong values: HPCG calls its result invalid: `HPCG result is=INVALID.`")
    ]  # fmt: skip
    assert said("hpcg", HPCG[:150])[0][0] == "not measured"


@pytest.mark.parametrize("tag", ["", "[1,0]<stdout>: ", "n1: "])
def test_each_program_of_npb_is_a_result(tag: str) -> None:
    both = NPB + NPB.replace("CG", "MG").replace("2134.55", "99.5")
    tagged = "".join(tag + line for line in both.splitlines(keepends=True))

    assert values("npb", tagged) == [2134.55, 99.5]
    assert "CG, class A" in read("npb", tagged)[0].text


@pytest.mark.parametrize(
    ("check", "status"),
    [("UNSUCCESSFUL", "failed"), ("NOT PERFORMED", "not measured"), ("", "not measured")],
)
def test_what_npb_did_not_verify_has_no_value(check: str, status: str) -> None:
    text = NPB.replace("=               SUCCESSFUL", f"= {check}")

    assert [(one.status.value, one.value) for one in read("npb", text)] == [(status, None)]
    assert said("npb", NPB[:300])[0][0] == "not measured"


HPL = """HPLinpack 2.3  --  High-Performance Linpack benchmark  --   December 2, 2018
T/V                N    NB     P     Q               Time                 Gflops
WR11C2R4       32768   256     2     4               9.12             2.5721e+03
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   2.84e-03 ...... PASSED
End of Tests.
"""


def test_a_benchmark_of_mixed_precision_is_not_hpl() -> None:
    assert values("hpcc", HPL) == [2.5721]

    other = HPL.replace("HPLinpack 2.3", "HPL-AI Mixed-Precision Benchmark v2.3d")
    ((status, text),) = said("hpcc", other)
    assert status == "refused"
    assert "HPL-AI" in text


def test_the_error_of_hpl_is_quoted() -> None:
    head = HPL.splitlines()[0]
    broken = f"{head}\nHPL ERROR from process # 0, on line 419 of function HPL_pdtest:\n>>> [0,0] Memory allocation failed for A, x and b. Skip. <<<\n"

    ((status, text),) = said("hpcc", broken)
    assert status == "not measured"
    assert "Memory allocation failed" in text
    assert "no row of HPL" in read("hpcc", f"{head}\n")[0].text


def test_columns_of_imb_that_are_not_read_are_named() -> None:
    text = "# Benchmarking Iallreduce \n# #processes = 16 \n       #bytes #repetitions t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]\n            4         1000        10.10         5.20         5.10         0.00\n# All processes entering MPI_Finalize\n"

    (reading,) = read("imb", text)
    assert "t_ovrl[usec]" in reading.text
    assert reading.value is None
