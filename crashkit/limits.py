"""How much of hostile or endless evidence is read and shown: the limits that more than one room shares, each with its reason.

Together they keep the promise of docs/security.md: any input of 10 MB takes less than 10 s and 500 MB, and gives a report of less
than 20 MB. What is cut is said in the report.
"""

from __future__ import annotations

LONGEST_LINE = 16 << 10
"""Bytes of a line of text that are examined, around what was searched for: C++ functions in gdb's backtraces have up to 10 KB."""
LONGEST_TEXT = 4096
"""Characters of any one name, value or message in a report. Linux has no longer path (PATH_MAX), and nobody reads a longer name."""
LONGEST_PATH = 4096
"""Bytes (PATH_MAX, linux/limits.h): no file has a longer path, so none is looked for."""
LONGEST_FILE_NAME = 255
"""Bytes (NAME_MAX, linux/limits.h)."""
MOST_PATH_PARTS = 128
"""A path is resolved part by part in a sysroot; real ones have less than 50 parts."""
MOST_SEGMENTS = 300_000
"""Segments and file mappings of a core. Linux allows 65,530 of them (vm.max_map_count) unless it is set higher, usually to 262,144."""
MOST_THREADS = 20_000
"""Threads of a core: ten thousand were seen."""
MOST_ARGUMENT_BYTES = 1 << 20
"""Of argv and of the environment each, which together share a quarter of the stack's limit, 2 MB."""
WHOLE_STACK = 20_000
"""Frames of a stack that is read and reported whole; of a deeper one, both ends. gdb walks so many in a second."""
FINDING_SECONDS = 5.0
"""Processor time to look for the files of a core's modules: a thousand real modules take 0.3 s."""
PATTERN_SECONDS = 1.0
"""Processor time for one match of a pattern that comes with a user's signature: ours take a millisecond."""
SIGNATURE_SECONDS = 2.0
"""Processor time for one signature: all of ours together take 0.1 s."""
MOST_MEMBERS_OF_A_RUN = 200_000
"""Files in all archives of one run: the artefacts of a large CI run have some thousand."""
MOST_ARCHIVE_BYTES = 256 << 30
"""Bytes that may come out of all archives of one run: two hundred cores of 1 GiB. The disk's free space bounds them, too."""
DEEPEST_ARCHIVE = 4
"""Archives within archives: a zip of CI with a tar with a bundle is three."""
MOST_FOUND = 100_000
"""Files that one run looks at."""
GPU_SECONDS = 3.0
"""Processor time to look through one GPU core: that of a whole GPU full of threads takes 0.5 s."""

MOST_MEMBERS = 20_000
"""Files and folders of an archive: a bundle of a process with a thousand modules has some thousand."""

THREAD_BYTES = 9 << 20
MAPPING_BYTES = 3 << 20
MODULE_BYTES = 2 << 20
LOG_BYTES = 1 << 20
GPU_BYTES = 2 << 20
OTHER_BYTES = 512 << 10
"""Bytes of JSON, without indentation, that threads, mappings, modules, log lines, GPU cores and anything else may take in a report,
besides a share of the evidence's size: see `report_bytes`."""
COROUTINE_BYTES = 6 << 20
"""Of what threads leave of THREAD_BYTES, tasks and greenlets may take so much: ten thousand tasks in a chain of three coroutines."""
_SHARE = 16
_MOST_REPORT = 64 << 20


def report_bytes(base: int, size: int | None) -> int:
    """How much of the report one of its lists may take if it may take `base` bytes of a report on a few megabytes of evidence.

    A large process has more threads and mappings, and a large core: each list may have a sixteenth of its size in addition.
    """
    return base + min((size or 0) // _SHARE, _MOST_REPORT)


_UNPACKED = 16 << 30
_MOST_UNPACKED = 1 << 40
_RATIO = 1000


def unpacked_bytes(size: int) -> int:
    """How many bytes an archive of this size may unpack to, counting holes.

    Cores are sparse, and zeros nearly vanish in an archive: zstd makes 4 bytes of 128 KiB.
    """
    return min(_UNPACKED + size * _RATIO, _MOST_UNPACKED)
