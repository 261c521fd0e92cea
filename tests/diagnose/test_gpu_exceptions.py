"""Every exception of NVIDIA's header: by a dump and by the driver's line in the log, the same finding.

Dumps of exceptions that no program here can cause are recorded ones with another code.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.gpu import layout
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash, Gpu
from crashkit.naming.gpu_exceptions import exception, meaning_of
from crashkit.pipeline import analyze

from ..gpu_cores import changed, data, described

UNKNOWN = 0xFFFFFFFF
FOUND = {
    "cuda-illegal-access": (1, 5, 7, 10, 14, 15, 16, 29, 30),
    "cuda-misaligned-address": (6, 11),
    "cuda-device-assert": (12,),
    "cuda-kernel-stack-overflow": (2, 3, 9, 19, 33, 35),
    "cuda-kernel-illegal-instruction": (4, 8, 23, 24, 25, 26, 27, 28),
    "cuda-kernel-cluster": (17, 18, 34),
    "cuda-kernel-bulk-copy": (31, 36),
    "cuda-kernel-tensor-memory": (20, 21),
    "cuda-kernel-device-heap": (13,),
    "cuda-kernel-newer-driver": (22,),
    "gpu-ecc-error": (32,),
    "cuda-launch-failure": (99, UNKNOWN),
}
"""By the codes of cudadebugger.h, CUDA 13.4; 99 is none of them."""
CASES = [(code, found) for found, codes in FOUND.items() for code in codes]
POISON = "[01:02:08.656447] coredump: Detected an exception of type CUDBG_EXCEPTION_CLUSTER_POISON (32)\n"
XID = "[55.797671] NVRM: Xid (PCI:0000:00:06): 94, pid=1074, name=python, Contained: SM (0x1). RST: No, D-RST: No\n"
"""As NVIDIA's documentation of Xid errors shows it."""


def test_every_code_is_here() -> None:
    assert sorted(code for code, _ in CASES) == [*range(1, 37), 99, UNKNOWN]


def failed_with(code: int) -> bytes:
    """The dump of an illegal address with another exception."""

    def change(kind: int, row: list[int], content: bytes) -> tuple[list[int], bytes]:
        at = {layout.LANES: 32, layout.SMS: 8}.get(kind)
        if at is None:
            return row, content
        new = bytearray(content)
        for start in range(0, len(content), row[9]):
            if struct.unpack_from("<I", content, start + at)[0]:
                struct.pack_into("<I", new, start + at, code)
        return row, bytes(new)

    return changed(data("null_store"), change)


def of_dump(code: int) -> Gpu:
    return described(failed_with(code))


@pytest.mark.parametrize(("code", "found"), CASES)
def test_a_dump_and_a_log_find_the_same(code: int, found: str, tmp_path: Path) -> None:
    gpu = of_dump(code)
    first = gpu.exceptions[0]
    meaning = exception(code)
    assert (first.name, first.code) == (meaning.name, code)
    assert meaning_of(meaning.name).kind == meaning.kind and "_" not in meaning.words
    finding = diagnose(Crash(gpu=(gpu,)), load_catalog()).findings[0]
    assert finding.id == found
    assert finding.confidence in ("certain", "likely")
    if code != 99:
        log = tmp_path / "stderr.log"
        log.write_text(f"[01:02:08.656447] coredump: Detected an exception of type CUDBG_EXCEPTION_{meaning.name} ({code})\n")
        told = diagnose(crash_of_log(log, read_log(log)), load_catalog()).findings
        assert [one.id for one in told] == [found]
    assert "{" not in (finding.summary or "")


def test_damaged_memory_by_a_dump_and_by_the_kernels_log(tmp_path: Path) -> None:
    """One finding, which both sources make certain. No real dump of it was seen."""
    dump, log = tmp_path / "x.nvcudmp", tmp_path / "dmesg.log"
    dump.write_bytes(failed_with(32))
    alone = analyze(dump).findings[0]
    assert (alone.id, alone.confidence) == ("gpu-ecc-error", "likely")
    assert "reported: uncorrectable memory error. It ended kernel null_store at" in (alone.summary or "")
    log.write_text(XID)
    found = analyze([dump, log]).findings
    assert [(one.id, one.confidence) for one in found] == [("gpu-ecc-error", "certain")]
    assert [one.text for one in found[0].evidence] == ["CLUSTER_POISON in null_store", XID.strip()]


def test_the_drivers_line_says_nothing_beside_a_dump(tmp_path: Path) -> None:
    """The dump knows more: where the two disagree, a soft error says so."""
    dump, log = tmp_path / "x.nvcudmp", tmp_path / "stderr.log"
    dump.write_bytes(data("null_store"))
    log.write_text(POISON)
    crash = analyze([dump, log])
    assert [one.id for one in crash.findings] == ["cuda-illegal-access"]
    assert len(crash.soft_errors) == 1
