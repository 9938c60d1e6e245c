"""Whether a program can be compiled for MPICH here."""

import shutil
import subprocess


def lacking() -> str:
    """What is missing, in one line; "" if nothing is.

    The compiler wrapper may be there without the headers.
    """
    compiler = shutil.which("mpicc.mpich")
    if compiler is None or shutil.which("mpiexec.mpich") is None:
        return "needs mpiexec.mpich and mpicc.mpich (Debian: mpich)"
    tried = subprocess.run(
        [compiler, "-E", "-x", "c", "-"],
        input=b"#include <mpi.h>\n",
        capture_output=True,
        timeout=300,
        check=False,
    )
    return "" if tried.returncode == 0 else "needs the headers of MPICH (Debian: libmpich-dev)"
