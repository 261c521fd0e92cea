"""What the Fortran runtime prints as it ends a process of Python: real programs of a real compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.pipeline import analyze

NO_FORTRAN = "no Fortran compiler here: apt-get install gfortran"
SOURCE = """
subroutine bounds(n)
  integer, intent(in) :: n
  integer :: a(10)
  a(n) = 1
  print *, a(n)
end subroutine
subroutine opening(n)
  integer, intent(in) :: n
  open(unit=n, file='/nonexistent/x', status='old')
end subroutine
subroutine giving_up(n)
  integer, intent(in) :: n
  if (n > 10) error stop 'no convergence'
end subroutine
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gfortran") or pytest.skip(NO_FORTRAN)
    folder = tmp_path_factory.mktemp("fortran")
    (folder / "solver.f90").write_text(SOURCE)
    command = [compiler, "-shared", "-fPIC", "-g", "-fcheck=all", "solver.f90", "-o", "libsolver.so"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return folder / "libsolver.so"


@pytest.mark.parametrize(
    ("routine", "says"),
    [
        ("bounds_", "Index '11' of dimension 1 of array 'a' above upper bound of 10. It was at solver.f90:5."),
        ("opening_", "Cannot open file '/nonexistent/x': No such file or directory. It was at solver.f90:10."),
        ("giving_up_", "no convergence."),
    ],
)
def test_the_runtime_ended_python(routine: str, says: str, library: Path, tmp_path: Path) -> None:
    program = f"import ctypes\nctypes.CDLL({str(library)!r}).{routine}(ctypes.byref(ctypes.c_int(11)))\nprint('survived')\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode and "survived" not in done.stdout
    (tmp_path / "log.txt").write_text(done.stderr)
    told = analyze(tmp_path / "log.txt").findings[0]
    assert (told.id, told.confidence) == ("fortran-runtime-error", "certain") and says in told.summary
