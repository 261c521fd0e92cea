"""What loaders, displays and libraries print as they end a program that has hardly begun: each message, in the forms in which it is seen.

They are taken from the sources of glibc (elf/), musl (ldso/dynlink.c), dyld, libX11 (src/XlibInt.c), GDK, Qt, VTK, numba (np/ufunc), torch
(csrc/DataLoader.cpp, utils/data), NumPy and Faiss. Those of this machine's loaders and its libX11 are read from these, too.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.evidence.text.log_patterns import Classifier

LOADS = "{program}: error while loading shared libraries: {library}: {reason}"
REASONS = """
shared object not open; file too short; cannot read file data; invalid ELF header; internal error; nonzero padding in e_ident; ELF file
ABI version invalid; ELF file OS ABI invalid; cannot allocate name record; cannot close file descriptor; cannot stat shared object:
Permission denied; cannot map zero-fill pages; wrong ELF class: ELFCLASS32; cannot extend global scope; invalid mode for dlopen():
Invalid argument; cannot allocate dependency buffer; DST not allowed in SUID/SGID programs; empty dynamic string token substitution;
cannot allocate dependency list; cannot allocate symbol search list; ELF file data encoding not little-endian; ELF file version does not
match current one; only ET_DYN and ET_EXEC can be loaded; ELF file's phentsize not the expected size; ELF file version ident does not
match current one; cannot create cache for search path; cannot create RUNPATH/RPATH copy; cannot create search path array; cannot
dynamically load position-independent executable; shared object cannot be dlopen()ed; cannot change memory protections; cannot allocate
memory for program header; cannot create shared object descriptor: Cannot allocate memory; failed to map segment from shared object;
failed to map segment from shared object: Operation not permitted; ELF load command address/offset not page-aligned; object file has no
dynamic section; cannot dynamically load executable; object file has no loadable segments; cannot open shared object file: No such file
or directory; cannot open shared object file: Permission denied; cannot open shared object file: Too many open files; cannot allocate
address lookup data; error due to GNU_PROPERTY_1_NEEDED_INDIRECT_EXTERN_ACCESS; cannot make segment writable for relocation: Permission
denied; cannot restore segment prot after reloc: Permission denied; cannot apply additional memory protection after relocation: Cannot
allocate memory; cannot create TLS data structures: Cannot allocate memory; unexpected reloc type 0x25; unsupported version 0 of Verneed
record; DT_RELR without GLIBC_ABI_DT_RELR dependency; rebuild shared object with SHSTK support enabled; not GCS compatible; failed to
turn on BTI protection
"""
OF_THEIR_OWN = {
    "cannot enable executable stack as shared object requires: Invalid argument": "executable-stack",
    "CPU ISA level is lower than required": "cpu-too-old",
    "cannot allocate memory in static TLS block": "static-tls-exhausted",
    "undefined symbol: _ZN3foo3barEv": "abi-undefined-symbol",
    "undefined symbol: foo_init, version FOO_1": "abi-undefined-symbol",
}
MESSAGES = {
    "library-not-loaded": """
./prog: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by ./prog)
node: /lib64/libm.so.6: version `GLIBC_2.27' not found (required by node)
prog: /usr/lib/libssl.so.1.1: version `OPENSSL_1_1_1' not found (required by /opt/bin/prog)
Error loading shared library libfoo.so.1: No such file or directory (needed by ./prog)
Error loading shared library /lib/libfoo.so.1: Exec format error (needed by ./prog)
Error relocating /lib/libfoo.so: unsupported relocation type 37
Error relocating /lib/libfoo.so: RELRO protection failed: Cannot allocate memory
dyld[1234]: Library not loaded: @rpath/libfoo.1.dylib
dyld: Library not loaded: /usr/local/opt/openssl/lib/libssl.1.0.0.dylib
dyld[99]: dyld private shared cache could not be found
dyld[99]: missing lazy symbol called
dyld[12]: terminating because inserted dylib '/x.dylib' could not be loaded: tried: '/x.dylib' (no such file)
dyld: could not load inserted library '/x.dylib' because image not found
dyld: cannot load 'prog' (load command 0x80000034 is unknown)
Termination Reason: DYLD, [0x1] Library missing
Termination Reason: Namespace DYLD, Code 4 Symbol missing
CANNOT LINK EXECUTABLE "./prog": library "libfoo.so" not found
CANNOT LINK EXECUTABLE "./prog": "/data/libx.so" is 64-bit instead of 32-bit
[123] Error loading Python lib '/tmp/_MEIabc/libpython3.10.so.1.0': dlopen: /lib64/libm.so.6: invalid ELF header
[PYI-7:ERROR] Failed to load Python shared library '/tmp/x/libpython3.14.so': /lib/libm.so.6: version `GLIBC_2.38' not found (required by x)
[PYI-7:ERROR] Failed to load Python DLL 'C:\\Temp\\_MEI1\\python311.dll'.
libgcc_s.so.1 must be installed for pthread_cancel to work
The code execution cannot proceed because VCRUNTIME140.dll was not found. Reinstalling the program may fix this problem.
The program can't start because MSVCP140.dll is missing from your computer. Try reinstalling the program to fix this problem.
The procedure entry point ucrtbase.terminate could not be located in the dynamic link library api-ms-win-crt-runtime-l1-1-0.dll.
The application was unable to start correctly (0xc000007b). Click OK to close the application.
The application failed to initialize properly (0xc0000135). Click on OK to terminate the application.
The application was unable to start correctly (0xc0000142). Click OK to close the application.
C:\\x\\foo.dll is either not designed to run on Windows or it contains an error. Error status 0xc000012f.
Process finished with exit code -1073741515 (0xC0000135)
process exited with code 3221225781
Process finished with exit code -1073741511 (0xC0000139)
Process finished with exit code -1073741701 (0xC000007B)
""",
    "abi-undefined-symbol": """
./prog: symbol lookup error: ./prog: undefined symbol: foo_init
./prog: symbol lookup error: /lib/libfoo.so: undefined symbol: foo_init, version FOO_1
./prog: relocation error: /lib/libfoo.so.1: symbol foo version FOO_1 not defined in file libbar.so.1 with link time reference
dyld[1]: Symbol not found: _foo_init
dyld: lazy symbol binding failed: Symbol not found: _foo
dyld[1]: symbol not found in flat namespace '_foo_init'
dyld[1]: weak-def symbol (__ZN3foo) not found in dyld cache
CANNOT LINK EXECUTABLE "./prog": cannot locate symbol "foo" referenced by "/data/prog"...
""",
    "glibc-library-on-musl": """
Error loading shared library ld-linux-x86-64.so.2: No such file or directory (needed by ./prog)
Error relocating ./prog: __vsnprintf_chk: symbol not found
""",
    "static-tls-exhausted": "Error relocating /x/libfoo.so: bar: initial-exec TLS resolves to dynamic definition in /y/libbar.so",
    "loader-inconsistency": "Inconsistency detected by ld.so: rtld.c: 100: dl_main: Unexpected error: Bad address.",
    "libc-fatal": "Fatal glibc error: cannot allocate memory for find-object data",
    "cpu-too-old": """
Fatal glibc error: CPU does not support x86-64-v2
Fatal glibc error: CPU lacks ISA 3.00 support (POWER9 or later required)
Fatal glibc error: CPU lacks VXE support (z14 or later required)
Fatal glibc error: This version of Amazon Linux requires a newer ARM64 processor compliant with at least ARM architecture 8.2-a
* This OpenCV build doesn't support current CPU/HW configuration *
Please verify that both the operating system and the processor support Intel(R) X87, CMOV, MMX, SSE, SSE2, SSE3 and SSE4_1 instructions.
""",
    "display-failed": """
X Error of failed request:  BadWindow (invalid Window parameter)
X Error of failed request:  255
XIO:  fatal IO error 11 (Resource temporarily unavailable) on X server ":0"
(prog:123): Gtk-WARNING **: 10:00:00.000: cannot open display: :0
Gtk-WARNING **: cannot open display:
Error: Can't open display: :0
Error: cannot open display:
xterm: Xt error: Can't open display: :99
The program 'prog' received an X Window System error.
(prog:123): Gdk-ERROR **: 10:00:00.000: The program 'prog' received an X Window System error.
prog: Fatal IO error 11 (Resource temporarily unavailable) on X server :0.
Gdk-Message: 10:00:00.000: Error 71 (Protocol error) dispatching to Wayland display.
Gdk-Message: 10:00:00.000: Error reading events from display: Broken pipe
The X11 connection broke (error 1). Did the X11 server die?
The Wayland connection broke. Did the Wayland compositor die?
The Wayland connection experienced a fatal error: Protocol error
vtkXOpenGLRenderWindow (0x7f29f000ff70): bad X server connection. DISPLAY=Aborted (core dumped)
ERR| vtkXOpenGLRenderWindow (0x2dddf00): bad X server connection. DISPLAY=localhost:0.0. Aborting.
""",
    "numba-workqueue-concurrent": """
Numba workqueue threading layer is terminating: Concurrent access has been detected.
Terminating: Nested parallel kernel launch detected, the workqueue threading layer does not supported nested parallelism.
""",
    "fork-openmp-hang": "Terminating: fork() called from a process already using GNU OpenMP, this is unsafe.",
    "cuda-after-fork": """
RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method
RuntimeError: Cannot re-initialize XPU in forked subprocess. To use XPU with multiprocessing, you must use the 'spawn' start method
RuntimeError: Cannot re-initialize MTIA in forked subprocess. To use MTIA with multiprocessing, you must use the 'spawn' start method
RuntimeError: Cannot re-initialize MLU in forked subprocess. To use MLU with multiprocessing, you must use the 'spawn' start method
""",
    "supervisor-worker-crashed": """
RuntimeError: DataLoader worker (pid 4242) is killed by signal: Aborted.
RuntimeError: DataLoader worker (pid 4242) is killed by signal: Illegal instruction.
RuntimeError: DataLoader worker (pid 4242) is killed by signal: Trace/breakpoint trap.
RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bad system call.
""",
    "dataloader-shm-exhausted": "RuntimeError: unable to resize file </torch_1_2_3> to the right size: No space left on device (28)",
    "protobuf-duplicate-registration": "F0000 00:00:1700000000.000000 123 descriptor.cc:2236] Check failed: GeneratedDatabase()->Add(f, n)",
    "c-assertion-failed": """
Faiss assertion 'err == CUBLAS_STATUS_SUCCESS' failed in faiss::gpu::runMatrixMult at faiss/gpu/utils/MatrixMult.cu:1
Faiss assertion 'i1 == 0' failed in void faiss::hnsw_add_vertices(IndexHNSW&, size_t, size_t, const float*, bool, bool) at IndexHNSW.cpp:123
""",
    "abi-numpy-size": "RuntimeError: module compiled against NumPy 2.0 but running on NumPy 1.x. Unfortunately, this is not supported",
    "mkl-threading-layer": "Intel oneMKL FATAL ERROR: Error on loading function 'mkl_blas_avx512_xsgemv'.",
}
"""By the signature that is first."""
FORMS = {
    "alone": "{}\n",
    "in a service's journal": "Nov 27 10:00:00 host run.sh[12]: {}\nNov 27 10:00:00 host systemd[1]: app: Failed with result 'exit-code'\n",
    "logged": "starting\n2026-11-27 10:00:00,123 - app.main - ERROR - {}\nmake: *** [Makefile:3: run] Error 1\n",
}


def found(text: str, path: Path) -> list[tuple[str, str]]:
    path.write_text(text)
    try:
        return [(finding.id, finding.confidence) for finding in diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings]
    except EvidenceError:
        return []


def every_message() -> list[tuple[str, str]]:
    of_glibc = [
        (LOADS.format(program=program, library=library, reason=reason), expected)
        for reason, expected in {**dict.fromkeys((one.strip() for one in REASONS.split(";")), "library-not-loaded"), **OF_THEIR_OWN}.items()
        for program, library in (("./prog", "libfoo.so.1"), ("/opt/app/bin/prog", "/opt/app/lib/libfoo.so.1"))
    ]
    return [*of_glibc, *((text, expected) for expected, texts in MESSAGES.items() for text in texts.strip().splitlines())]


@pytest.mark.parametrize("form", FORMS)
def test_the_cause_is_named(form: str, tmp_path: Path) -> None:
    messages = every_message()
    assert len(messages) > 200
    first = {text: next(iter(found(FORMS[form].format(text), tmp_path / "log")), None) for text, _ in messages}
    assert {text: first[text] for text, expected in messages if first[text] is None or first[text] not in sure(expected)} == {}


def sure(expected: str) -> set[tuple[str, str]]:
    return {(expected, "certain"), (expected, "likely")}


HANDLED = """
ImportError: libGL.so.1: cannot open shared object file: No such file or directory
OSError: /usr/lib/libfoo.so: invalid ELF header
ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /venv/lib/python3.11/site-packages/x.so)
because of the following error: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by /x/y.so)
Error: /lib64/libm.so.6: version `GLIBC_2.27' not found (required by /x/node_modules/y.node)
ImportError: Error loading shared library libssl.so.1.1: No such file or directory (needed by /usr/lib/python3.8/x.so)
java.lang.UnsatisfiedLinkError: /tmp/a.so: Error loading shared library libz.so.1: No such file or directory (needed by /tmp/a.so)
ImportError: dlopen(/x/y.so, 0x0002): Library not loaded: @rpath/libfoo.dylib
Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory
ERROR: ld.so: object 'libx.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.
./prog: /usr/lib/libtinfo.so.6: no version information available (required by ./prog)
If you see "error while loading shared libraries", run ldconfig as root.
dyld[123]: <4C4C4444-5555-3144-A1F0> /usr/lib/libSystem.B.dylib
INFO the DYLD, LD and other variables are removed
def test_library_not_loaded(): assert "Library not loaded" in text
ImportError: DLL load failed while importing _x: The specified module could not be found.
OSError: [WinError 126] The specified module could not be found. Error loading "C:\\x\\torch_python.dll" or one of its dependencies.
raise RuntimeError("cannot open display: " + name)
_tkinter.TclError: no display name and no $DISPLAY environment variable
Xlib.error.DisplayConnectionError: Can't connect to display ":0"
RuntimeError: cannot open display: :0
vtkXOpenGLRenderWindow (0x5): bad X server connection. DISPLAY=
qt.qpa.xcb: QXcbConnection: XCB error: 3 (BadWindow), sequence: 178, resource id: 90, major code: 146 (Unknown), minor code: 20
libGL error: No matching fbConfigs or visuals found
Xlib:  extension "NV-GLX" missing on display ":0".
The Wayland compositor does not provide any supported shell interface, not using Wayland display
display: 0 connected, resolution 1920x1080
Numba: Attempted to fork from a non-main thread, the TBB library may be in an invalid state in the child process.
NumbaWarning: The workqueue threading layer is not threadsafe
Other threads are currently calling into gRPC, skipping fork() handlers
RuntimeError: Pin memory thread exited unexpectedly
The program was compiled against zlib 1.2.11, runs with 1.3
Intel(R) MKL is used, the processor supports AVX2
2 workers broke off, 3 are left
RuntimeError: Error in virtual void faiss::IndexFlat::add() at IndexFlat.cpp:25: Error: 'n >= 0' failed
"""
"""Of programs that go on or may, of documentation and of code: nothing is claimed of them above possible."""


def test_what_a_program_may_handle(tmp_path: Path) -> None:
    claimed = {text: found(text + "\n", tmp_path / "log") for text in HANDLED.strip().splitlines()}
    assert {text: findings for text, findings in claimed.items() if any(confidence != "possible" for _, confidence in findings)} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "WARN| vtkXOpenGLRenderWindow (0x5): bad X server connection. DISPLAY=\n[ERROR] no window\nAborted (core dumped)\n",
            "display-failed",
        ),
        ("Unable to init server: Could not connect: Connection refused\nAborted (core dumped)\n", "display-failed"),
        (
            "Failed to create wl_display (No such file or directory)\n"
            'qt.qpa.plugin: Could not load the Qt platform plugin "wayland" in "" even though it was found.\n'
            "Aborted (core dumped)\n",
            "qt-platform-plugin",
        ),
    ],
)
def test_a_warning_and_the_end(text: str, expected: str, tmp_path: Path) -> None:
    assert found(text, tmp_path / "log")[:1] == [(expected, "likely")]


def test_a_program_that_was_tried_is_not_what_crashed(tmp_path: Path) -> None:
    """The process went on, and then something else ended it."""
    text = "nvcc: error while loading shared libraries: libx.so: cannot open shared object file: Permission denied\nSegmentation fault\n"
    assert "library-not-loaded" not in dict(found(text, tmp_path / "log"))
    text = "X Error of failed request:  BadWindow (invalid Window parameter)\nSegmentation fault (core dumped)\n"
    assert "display-failed" not in dict(found(text, tmp_path / "log"))


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (
            "./prog: error while loading shared libraries: libfoo.so.1: file too short",
            "The loader could not load libfoo.so.1 for ./prog, and ended it. The reason that it gave: file too short.",
        ),
        (
            "Error loading shared library libfoo.so.1: No such file or directory (needed by ./prog)",
            "The loader could not load libfoo.so.1 for the program, and ended it. "
            "The reason that it gave: No such file or directory. It is needed by ./prog.",
        ),
        (
            "Terminating: fork() called from a process already using GNU OpenMP, this is unsafe.",
            "A forked process used OpenMP, whose threads exist only in its parent. "
            "numba ended it for that: Terminating: fork() called from a process already using GNU OpenMP.",
        ),
    ],
)
def test_what_is_said_of_it(text: str, summary: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(text + "\n")
    assert diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings[0].summary == summary


NAME = b"\0libc.so.6\0"


def loaders() -> list[str]:
    """glibc's and musl's, of this machine."""
    return sorted(str(path) for path in (*Path("/lib64").glob("ld-linux-*.so.*"), *Path("/lib").glob("ld-*.so.?")) if path.exists())


@pytest.mark.parametrize("loader", loaders())
@pytest.mark.parametrize("damage", ["a library that is missing", "a file that is too short", "a file of something else"])
def test_what_this_machine_s_loader_says(loader: str, damage: str, tmp_path: Path) -> None:
    program = tmp_path / "prog"
    whole = Path(shutil.which("true") or "/bin/true").resolve().read_bytes()
    if damage == "a library that is missing":
        if NAME not in whole:
            pytest.skip("this system's programs are not linked against glibc")
        program.write_bytes(whole.replace(NAME, b"\0libq.so.6\0"))
    else:
        program.write_bytes(whole[:40] if "short" in damage else b"#!/bin/sh\n" * 40)
    done = subprocess.run([loader, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode in (1, 127), done
    if "musl" not in loader:
        assert found(done.stderr, tmp_path / "log")[:1] == [("library-not-loaded", "certain")], done.stderr
    elif "missing" in damage:  # it also lacks what only glibc has, and says so first of all
        assert dict(found(done.stderr, tmp_path / "log")).keys() >= {"glibc-library-on-musl"}
        assert {kind_of(line) for line in done.stderr.splitlines()[:1]} == {"loader-gave-up"}


def texts_of(library: str, pattern: re.Pattern[bytes]) -> list[str]:
    paths = [path for folder in ("/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu") for path in Path(folder).glob(library)]
    if not paths:
        pytest.skip(f"{library} is not installed")
    return sorted({text.decode() for text in pattern.findall(paths[0].read_bytes())})


def kind_of(text: str) -> Optional[str]:
    classified = Classifier().classify(text)
    return classified[0] if classified is not None else None


def test_what_this_machine_s_libx11_says() -> None:
    texts = texts_of("libX11.so.6", re.compile(rb"(?:XIO: |X connection to )[^\0\r\n]{10,100}"))
    assert len(texts) == 2
    filled = [text.replace("%d", "11").replace("%s", ":0") for text in texts]
    assert [text for text in filled if kind_of(text) != "display-failed"] == []
