"""What a program was started in (catalog/environment.toml): the words of public reports, and what only looks like them."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log

KNOWN = {
    "qemu: uncaught target signal 11 (Segmentation fault) - core dumped\nSegmentation fault (core dumped)": "emulated-processor",
    "#7 99.79 qemu: uncaught target signal 6 (Aborted) - core dumped": "emulated-processor",
    "2018-01-17 08:21:49.120154: F tensorflow/core/platform/cpu_feature_guard.cc:35] The TensorFlow library was compiled to use AVX2 instructions, but these aren't available on your machine.\nAborted (core dumped)": "cpu-too-old",
    "The TensorFlow library was compiled to use AVX instructions, but these aren’t available on your machine.": "cpu-too-old",
    "Fatal glibc error: CPU does not support x86-64-v2": "cpu-too-old",
    "RuntimeError: This version of jaxlib was built using AVX instructions, which your CPU and/or operating system do not support.": "cpu-too-old",
    "[xcb] Most likely this is a multi-threaded client and XInitThreads has not been called\n[xcb] Aborting, sorry about that.\npython: ../../src/xcb_io.c:274: poll_for_event: Assertion `!xcb_xlib_threads_sequence_lost' failed.\nAborted": "gui-wrong-thread",
    "python3: ../../src/xcb_io.c:157: append_pending_request: Assertion `!xcb_xlib_unknown_seq_number' failed.": "gui-wrong-thread",
    "QObject::setParent: Cannot set parent, new parent is in a different thread\nSegmentation fault (core dumped)": "gui-wrong-thread",
    "Warning! ***HDF5 library version mismatched error***\nHeaders are 1.10.1, library is 1.10.2\nAborted (core dumped)": "hdf5-mismatch",
    "The HDF5 header files used to compile this application do not match\nthe version used by the HDF5 library to which this application is linked.": "hdf5-mismatch",
    "[libprotobuf FATAL google/protobuf/stubs/common.cc:87] This program was compiled against version 3.9.2 of the Protocol Buffer runtime library, which is not compatible with the installed version (3.18.1).\nterminate called after throwing an instance of 'google::protobuf::FatalException'": "protobuf-version",
    "TypeError: Descriptors cannot be created directly.": "protobuf-version",
    "ValueError: numpy.ndarray size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject": "abi-numpy-size",
    "RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xf": "abi-numpy-size",
    "Failed to initialize NVML: Driver/library version mismatch": "cuda-driver-mismatch",
    "RuntimeError: The NVIDIA driver on your system is too old (found version 10010).": "cuda-driver-mismatch",
    ":0:rocdevice.cpp            :3586: 11398051401 us:  Callback: Queue 0x7f4307e00000 aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016\nFatal Python error: Aborted": "rocm-queue-abort",
    ":0:rocdevice.cpp            :2303: 768423197593 us: Device::callbackQueue aborting with status: 0x100f": "rocm-queue-abort",
    "BLAS : Program is Terminated. Because you tried to allocate too many memory regions.\nSegmentation fault (core dumped)": "openblas-memory-regions",
    "OpenBLAS : Program is Terminated. Because you tried to allocate too many memory regions.": "openblas-memory-regions",
    "Inconsistency detected by ld.so: ../elf/dl-tls.c: 517: _dl_allocate_tls_init: Assertion `listp != NULL' failed!": "loader-inconsistency",
    "Inconsistency detected by ld.so: dl-version.c: 205: _dl_check_map_versions: Assertion `needed != NULL' failed!": "loader-inconsistency",
    "ImportError: /opt/x.so: cannot enable executable stack as shared object requires: Invalid argument": "executable-stack",
    "Exception Type:        EXC_CRASH (SIGKILL (Code Signature Invalid))": "macos-code-signature",
    "Termination Reason:    Namespace CODESIGNING, Code 2 Invalid Page": "macos-code-signature",
    "*** bit out of range 0 - FD_SETSIZE on fd_set ***: terminated": "fd-set-overflow",
    "RuntimeError: can't start new thread": "thread-limit",
    "[1234:0501/120000.123:FATAL:zygote_host_impl_linux.cc(90)] Running as root without --no-sandbox is not supported.": "glog-check-failed",
    "RuntimeError: main thread is not in main loop\nTcl_AsyncDelete: async handler deleted by the wrong thread": "tk-wrong-thread",
    "RuntimeError: main thread is not in main loop\nFatal Python error: Aborted": "tk-wrong-thread",
}


def _named(text: str, tmp_path: Path) -> list[tuple[str, str]]:
    (tmp_path / "posted.log").write_text(text + "\n")
    try:
        crash = crash_of_log(tmp_path / "posted.log", read_log(tmp_path / "posted.log"))
    except EvidenceError:
        return []
    return [(finding.id, finding.confidence) for finding in diagnose(crash, load_catalog()).findings]


@pytest.mark.parametrize("text", KNOWN)
def test_named_first(text: str, tmp_path: Path) -> None:
    assert [identity for identity, _ in _named(text, tmp_path)][:1] == [KNOWN[text]]


@pytest.mark.parametrize(
    "text",
    [
        "W tensorflow/core/platform/cpu_feature_guard.cc:45] The TensorFlow library wasn't compiled to use AVX instructions, but these are available on your machine",
        "I tensorflow/core/platform/cpu_feature_guard.cc:142] This TensorFlow binary is optimized to use the following CPU instructions: AVX2",
        "qemu-system-x86_64: terminating on signal 15 from pid 3072",
        "[xcb] You called XInitThreads, this is not your fault",
        "HDF5 1.10.4 was found",
        "[libprotobuf WARNING google/protobuf/io/coded_stream.cc:604] Reading dangerously large protocol message.",
        "OpenBLAS warning: precompiled NUM_THREADS exceeded, adding auxiliary array for thread metadata.",
        "/usr/bin/ld: warning: efermig.o: requires executable stack",
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        "ImportError: /lib64/libm.so.6: version `GLIBC_2.29' not found",
        "NVIDIA-SMI 535.54  Driver Version: 535.54  CUDA Version: 12.2",
        "The OOMKilled is a very short-lived container state",
        "Chromium [1234:0501/120000.123:ERROR:gpu.cc(12)] Exiting GPU process",
    ],
)
def test_what_only_looks_like_it(text: str, tmp_path: Path) -> None:
    assert [identity for identity, confidence in _named(text, tmp_path) if confidence != "possible"] == []


def test_a_warning_of_qt_is_no_more_than_possible(tmp_path: Path) -> None:
    text = "QBasicTimer::start: Timers cannot be started from another thread\nSegmentation fault"
    assert _named(text, tmp_path)[0] == ("gui-wrong-thread", "possible")
