"""What allocators, C and C++ libraries and sanitizers print as they end a process: their messages, read from their sources.

LLVM's compiler-rt, libc++ and libc++abi of 2026, GCC's libstdc++ 12 (from its file, where it is here), jemalloc, gperftools, tcmalloc, mimalloc and
hardened_malloc of 2026, bionic and macOS's libmalloc of 2025, OpenBSD 6.8, DUMA, valgrind 3.19, Microsoft's debug runtime.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.evidence.text.log_patterns import Classifier

TCMALLOC = "4711 tcmalloc/error_reporting.cc:141] CHECK in "
MACOS = "python3.11(4711,0x1f1a2b3c0) malloc: "
KINDS = {
    "double-free": [
        "<jemalloc>: Invalid deallocation detected: double free of pointer 0x7f01",
        "memory allocation bug: object at 0x7f01 has been already deallocated (it was allocated with malloc)",
        f"{TCMALLOC}ReportDoubleFree: Possible double free detected of 0x7f01",
        "mimalloc: error: thread 0x7F01: double free detected of block 0x7f01 with size 32",
        "mimalloc: error: thread 0x7F01: trying to free an already freed arena block: 0x7f01, size 4096",
        "Scudo ERROR: invalid chunk state when deallocating address 0x7f01",
        "Scudo ERROR: invalid chunk state when recycling address 0x7f01",
        "fatal allocator error: double free",
        "fatal allocator error: double free (quarantine)",
        "+++ ALLOCATION 0xb4007f01 USED AFTER FREE (free)",
        "DUMA Aborting: free(7f01): memory already freed at a.c(12)",
        f"{MACOS}Double free of object 0x600000010",
        f"{MACOS}double free for ptr 0x600000010",
        "python3.11(4711) in free(): chunk is already free 0x7f01",
        "python3.11(4711) in free(): double free 0x7f01",
        "VERIFIER STOP 00000007: pid 0x1267: Heap block already freed.",
    ],
    "invalid-free": [
        "<jemalloc>: size mismatch detected (true size 32 vs input size 16), likely caused by application sized deallocation bugs",
        "Invalid deallocation detected: pages being freed (0x7f01) not currently active, possibly caused by double free bugs.",
        "src/tcmalloc.cc:333] Attempt to free invalid pointer 0x7f01",
        "src/tcmalloc.cc:333] Attempt to get the size of an invalid pointer 0x7f01",
        "memory allocation bug: object at 0x7f01 has never been allocated",
        "memory allocation/deallocation mismatch at 0x7f01: allocated with new being deallocated with free",
        f"{TCMALLOC}ReportCorruptedFree: Attempted to free corrupted pointer 0x7f01.  Expected alignment 8",
        f"{TCMALLOC}ReportMismatchedFree: Deallocating 0x7f01 with delete, expected free",
        f"{TCMALLOC}ReportMismatchedDelete: Mismatched-size-delete (docs/mismatched-sized-delete.md) of 16 bytes (expected 32 - 40 bytes) at:",
        f"{TCMALLOC}ReportMismatchedSizeClass: Mismatched-size-class (docs/mismatched-sized-delete.md) discovered for pointer 0x7f01",
        "mimalloc: error: thread 0x7F01: mi_free: invalid (unaligned) pointer: 0x7f01",
        "mimalloc: error: thread 0x7F01: mi_free: pointer does not point to a valid heap space: 0x7f01",
        "mimalloc: error: thread 0x7F01: trying to free from an invalid arena block: 0x7f01, size 4096, memid: 0x3",
        "Scudo ERROR: misaligned pointer when deallocating address 0x7f01",
        "Scudo ERROR: allocation type mismatch when deallocating address 0x7f01 (1 vs 0)",
        "Scudo ERROR: invalid sized delete when deallocating address 0x7f01 (16 vs 32)",
        *(
            f"fatal allocator error: {text}"
            for text in (
                "invalid free",
                "invalid unaligned free",
                "invalid uninitialized allocator usage",
                "invalid realloc",
                "sized deallocation mismatch (large)",
                "invalid free within a slab yet to be used",
                "invalid malloc_usable_size (quarantine)",
            )
        ),
        "Pointer tag for 0xb400007f01 was truncated, see 'https://source.android.com/devices/tech/debug/tagged-pointers'.",
        "+++ ALLOCATION 0xb4007f01 UNKNOWN POINTER (free)",
        "+++ ALLOCATION 0xb4007f01 HAS INVALID TAG 1e2f (free)",
        "DUMA Aborting: free(7f01): address not from DUMA or already freed.",
        "DUMA Aborting: Free mismatch: allocator 'malloc' used  but  deallocator 'delete' called!",
        "ElectricFence Aborting: free(7f01): address not from malloc().",
        *(
            MACOS + text
            for text in (
                "*** error for object 0x600000010: pointer being freed was not allocated",
                "pointer 0x600000010 being freed was not allocated",
                "Pointer 0x600000010 to metadata being freed (2)",
                "Non-aligned pointer 0x600000011 being freed",
                "non-page-aligned, non-allocated pointer 0x600000010 being freed",
                "*** FATAL ERROR - ProbGuard: invalid pointer passed to free.",
            )
        ),
        *(
            f"python3.11(4711) in {text}"
            for text in (
                "free(): bogus pointer (double free?) 0x7f01",
                "realloc(): bogus moved pointer 0x7f01",
                "free(): modified chunk-pointer 0x7f01",
                "freezero(): recorded size 16 < 32",
                "recallocarray(): recorded old size 16 != 32",
            )
        ),
        "HEAP[python.exe]: Invalid address specified to RtlFreeHeap( 000001FDE3900000, 000001FDE39A5950 )",
    ],
    "heap-overflow": [
        "<jemalloc>: Write-after-free detected on deallocated pointer 0x7f01 (size 32).",
        "Internal heap corruption detected: mismatch in slab bit",
        "memory stomping bug: a word after object at 0x7f01 has been corrupted",
        "memory corruption bug: offset_ field is corrupted. Need 0 but got 3",
        "Memory was written to after being freed.  MallocBlock: 0x7f01, user ptr: 0x7f11, size: 32.",
        "mimalloc: error: thread 0x7F01: corrupted free list entry of size 32b at 0x7f01: value 0x41414141",
        "mimalloc: error: thread 0x7F01: corrupted thread-free list",
        "mimalloc: error: reading from invalid page, possibly corrupted meta-data (address=0x7f01, page=0x7f00)",
        "Scudo ERROR: corrupted chunk header at address 0x7f01: most likely due to memory corruption",
        "fatal allocator error: canary corrupted",
        "fatal allocator error: detected write after free",
        "fatal allocator error: invalid malloc_object_size (canary)",
        "+++ ALLOCATION 0xb4007f01 SIZE 100 HAS A CORRUPTED REAR GUARD",
        "+++ ALLOCATION 0xb4007f01 USED AFTER FREE",
        *(
            MACOS + text
            for text in (
                "Heap corruption detected, free list is damaged at 0x600000010",
                "Incorrect checksum for freed object 0x600000010: probably modified after being freed.",
                "incorrect size information for 0x600000010 - block header was damaged",
                "Corruption of free object 0x600000010: msizes 1/2 disagree",
                "Corruption of tiny freelist 0x600000010: size too small (0/1)",
                "Region cookie corrupted for region 0x600000000 (value is 4141)[0x600000010]",
                "*** MallocCheckHeap: FAILED check at operation #1002",
            )
        ),
        *(
            f"python3.11(4711) in {text}"
            for text in (
                "free(): chunk canary corrupted 0x7f01 0x10@0x10",
                "malloc(): use after free 0x7f01",
                "malloc(): chunk info corrupted",
                "malloc(): internal struct corrupt",
            )
        ),
        "HEAP[a.exe]: Heap block at 000001FDE39A5950 modified at 000001FDE39A5974 past requested size of 24",
        "HEAP CORRUPTION DETECTED: after Normal block (#152) at 0x00ED6040.",
        "VERIFIER STOP 0000000F: pid 0x1267: Corrupted suffix pattern for heap block.",
        "valgrind: Heap block lo/hi size mismatch: lo = 80, hi = 0.",
    ],
    "allocator-refused": [
        "src/common.cc:156] FATAL ERROR: Out of memory trying to allocate internal tcmalloc data (bytes, object-size) 131072 48",
        "Scudo ERROR: out of memory trying to allocate 34359738368 bytes",
        "Scudo ERROR: internal map failure (error desc=Out of memory) requesting 256KB",
        "<jemalloc>: Allocation of size 34359738368 failed. opt.experimental_infallible_new is true. Aborting.",
        "libc++abi: __cxa_vec_new failed to allocate memory",
    ],
    "stack-smashing": [
        *(
            f"FORTIFY: {text}"
            for text in (
                "strcpy: prevented 20-byte write into 10-byte buffer",
                "strlen: detected read past end of buffer",
                "strcat: prevented write past end of 10-byte buffer",
                "stpncpy: detected read past end of 10-byte buffer",
                "poll: 1-element pollfd array too small for 2 fds",
                "memmove: count 18446744073709551615 > SSIZE_MAX",
            )
        ),
        "stack corruption detected (-fstack-protector)",
    ],
    "fd-set-overflow": [
        "FORTIFY: FD_SET: file descriptor 1025 >= FD_SETSIZE 1024",
        "FORTIFY: FD_ISSET: set size 4 is too small to be an fd_set",
    ],
    "libc-fatal": [
        *(
            f"FORTIFY: {text}"
            for text in (
                "%n not allowed on Android",
                "pthread_mutex_lock called on a destroyed mutex (0x7f01)",
                "open: called with O_CREAT/O_TMPFILE but no mode",
                "fclose: null FILE*",
                "FD_SET: file descriptor -1 < 0",
            )
        ),
        "fdsan: attempted to close file descriptor 42, expected to be unowned, actually owned by FILE* 0x7f01",
        "fdsan: double-close of file descriptor 42 detected",
        "fdsan: failed to exchange ownership of file descriptor: fd 42 is owned by FILE* 0x7f01, was expected to be unowned",
        "invalid pthread_t 0x7f01 passed to pthread_join",
        "setjmp checksum mismatch",
    ],
    "c-assert": [
        "/usr/include/c++/v1/vector:1390: assertion __n < size() failed: vector[] index out of bounds",
        "../../libc++/trunk/include/optional:805: libc++ Hardening assertion this->has_value() failed: optional operator* called on a disengaged value",
        '<jemalloc>: src/jemalloc.c:2112: Failed assertion: "ptr != NULL"',
        "<jemalloc>: src/jemalloc.c:2112: Unreachable code reached",
        'mimalloc: assertion failed: at "src/page.c":123, mi_page_free',
    ],
    "cxx-debug-check": ["Error: attempt to dereference a past-the-end iterator."],
    "terminate": [
        "bad_optional_access was thrown in -fno-exceptions mode",
        'out_of_range was thrown in -fno-exceptions mode with message "vector"',
        'ios_base::failure was thrown in -fno-exceptions mode with message "bad"',
        "libc++abi: bad_alloc was thrown in -fno-exceptions mode",
    ],
    "terminate-again": ["libc++abi: terminate_handler unexpectedly threw an exception"],
    "terminate-bare": ["libc++abi: terminating", "libc++abi: terminate_handler unexpectedly returned"],
    "pure-virtual": [
        "pure virtual method called",
        "deleted virtual method called",
        "libc++abi: Pure virtual function called!",
        "libc++abi: Deleted virtual function called!",
    ],
    "ubsan": [
        "ubsan: add-overflow by 0x000000401136",
        "ubsan: shift-out-of-bounds",
        "ubsan: type-mismatch by 0x000000401136",
        "ubsan: cfi-check-fail by 0x000000401136",
        "ubsan: nullability-return",
    ],
    "asan": [
        "*** GWP-ASan detected a memory error ***",
        "4711 tcmalloc/segv_handler.cc:162] *** GWP-ASan (https://google.github.io/tcmalloc/gwp-asan.html) has detected a memory error ***",
    ],
    "sanitizer-unable": [
        "FATAL: ThreadSanitizer: unexpected memory mapping 0x5e6583a81000-0x5e6583a8b000",
        "FATAL: MemorySanitizer can not mmap the shadow memory.",
        "FATAL: ThreadSanitizer: unsupported VMA range",
        "FATAL: HWAddressSanitizer requires a kernel with tagged address ABI.",
        "==4711==Shadow memory range interleaves with an existing memory mapping. ASan cannot proceed correctly. ABORTING.",
        "==4711==LeakSanitizer has encountered a fatal error.",
        "==4711==You are trying to dlopen a /opt/libfoo.so shared library with RTLD_DEEPBIND flag which is incompatible with sanitizer runtime",
        "==4711==ERROR: AddressSanitizer failed to allocate 0xdfff0001000 (15392894357504) bytes at address 2008fff7000 (errno: 12)",
        "ERROR: Failed to protect the shadow gap. AddressSanitizer cannot proceed correctly. ABORTING.",
        "==4711==This sanitizer is not compatible with enabled ASLR.",
    ],
}
LOOK_ALIKES = [
    # Rules, tests and documents that have their words, retries and what is handled.
    "WARNING retrying: double free of the cache entry was avoided",
    "free(): chunk is already free is printed by ngx_slab_free()",
    "2026-01-02 [alert] 4711#0: ngx_slab_free(): chunk is already free",
    "def test_double_free_detected_of_block(): ...",
    "raise ValueError('invalid pointer passed to free')",
    "INFO malloc: arena 3 has 12 blocks",
    "the heap has 3 blocks modified at startup",
    "CHECK in progress: Possible duplicates",
    "FORTIFY_SOURCE=2 is set by the distribution",
    "ubsan: enabled",
    "ubsan: add-overflow checks are on",
    "fdsan: level set to warn once",
    "HEAP: 512 MB used of 1024 MB",
    "GWP-ASan is enabled for 1 of 1000 processes",
    "LeakSanitizer: detected memory leaks",
    "ThreadSanitizer: reported 1 warnings",
    "AddressSanitizer failed to intercept 'xdr_double'",
    "Error: attempt to write a readonly database",
    "Error: attempt to compare two values that differ",
    "Error: attempt to apply non-function",
    "Error: attempt to use zero-length variable name",
    "Error: attempt to perform arithmetic on a nil value",
    "bad_alloc was thrown and caught, the batch is made smaller",
    "test.py:12: assertion failed: x == 3",
    "tests/test_a.py:12: assertion error failed: retrying",
    "in save(): recorded size 16 differs",
    "VERIFIER STOP requested by the user",
    "DUMA Aborting is not supported",
    "Scudo ERROR handling is documented below",
    "a pure virtual method in the base class",
    "Unable to allocate 3.2 GiB for an array with shape (1, 2)",
]
CATALOG = load_catalog()


def kind_of(text: str) -> Optional[str]:
    found = Classifier().classify(text)
    return found[0] if found is not None else None


def first(text: str, path: Path) -> Optional[str]:
    path.write_text(text + "\n")
    try:
        found = read_log(path)
    except EvidenceError:
        return None
    findings = diagnose(crash_of_log(path, found), CATALOG).findings
    return findings[0].id if findings else None


def lines() -> Iterator[tuple[str, str]]:
    return ((kind, text) for kind, texts in KINDS.items() for text in texts)


@pytest.mark.parametrize(
    "form", ["{}", "2026-01-02 03:04:05,678 - app - ERROR - {}", "01-02 03:04:05.678  4711  4712 F libc    : {}", "[rank3]: {}"]
)
def test_kinds(form: str) -> None:
    anchored = ("cxx-debug-check",)
    texts = [(kind, text) for kind, text in lines() if form == "{}" or kind not in anchored]
    found = {text: kind_of(form.format(text)) for _, text in texts}
    assert {text: found[text] for kind, text in texts if found[text] != kind} == {}


def test_android_quotes_them() -> None:
    texts = [
        (kind, text) for kind, text in lines() if text.startswith(("FORTIFY", "fdsan", "Scudo", "stack corr", "invalid pth", "fatal alloc"))
    ]
    found = {text: kind_of(f"Abort message: '{text}'") for _, text in texts}
    # The rest of a line that ends with a bracket is not looked at behind it.
    assert {text: found[text] for kind, text in texts if found[text] != kind and not text.startswith("fatal alloc")} == {}


def test_look_alikes() -> None:
    ours = set(KINDS)
    assert {text: kind for text in LOOK_ALIKES if (kind := kind_of(text)) in ours} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ubsan: type-mismatch by 0x000000401136\nAborted (core dumped)", "ubsan-report"),
        ("FATAL: ThreadSanitizer: unexpected memory mapping 0x5e6583a81000-0x5e6583a8b000\nmake: *** [Makefile:12: check] Error 66", "sanitizer-unable"),
        ("*** GWP-ASan detected a memory error ***\nDouble Free at 0x7feccab26000 (a 41-byte allocation) by thread 31027 here:\n", "asan-report"),
        ("DUMA Aborting: free(7f01): memory already freed.\nIllegal instruction (core dumped)", "heap-corruption-double-free"),
        ("FORTIFY: FD_SET: file descriptor 1025 >= FD_SETSIZE 1024\nAborted", "fd-set-overflow"),
        ("bad_alloc was thrown in -fno-exceptions mode\nAborted (core dumped)", "cxx-bad-alloc"),
        ("out_of_range was thrown in -fno-exceptions mode\nAborted (core dumped)", "cxx-uncaught-exception"),
        ("deleted virtual method called\nterminate called without an active exception\nAborted (core dumped)", "cxx-pure-virtual"),
        ("/usr/include/c++/12/debug/vector:442:\nIn function:\n    f\n\nError: attempt to subscript container with out-of-bounds index 10, but \ncontainer only holds 3 elements.\n\nObjects involved in the operation:\nAborted (core dumped)", "c-assertion-failed"),
        ("Scudo ERROR: out of memory trying to allocate 34359738368 bytes\nAborted (core dumped)", "cxx-bad-alloc"),
        ("==4711==ERROR: ThreadSanitizer: SEGV on unknown address 0x000000000000 (pc 0x55d5c0 bp 0x7ffd1 sp 0x7ffd0 T4711)\n==4711==The signal is caused by a READ memory access.\n==4711==Hint: address points to the zero page.\n    #0 fill /src/a.c:12 (a.out+0x4c1)", "null-deref"),
        ("==4711== Process terminating with default action of signal 11 (SIGSEGV): dumping core\n==4711==  General Protection Fault\n==4711==    at 0x109151: fill (a.c:12)", "wild-pointer"),
        ("==4711== Process terminating with default action of signal 11 (SIGSEGV): dumping core\n==4711==  Bad permissions for mapped region at address 0x109000\n==4711==    at 0x109151: fill (a.c:12)", "wild-pointer"),
    ],
)  # fmt: skip
def test_what_is_told(text: str, expected: str, tmp_path: Path) -> None:
    assert first(text, tmp_path / "log") == expected


def test_thread_sanitizer_has_a_fix_for_each(tmp_path: Path) -> None:
    fixes = []
    for what in (
        "data race",
        "lock-order-inversion (potential deadlock)",
        "destroy of a locked mutex",
        "thread leak",
        "signal handler spoils errno",
    ):
        (path := tmp_path / "log").write_text(f"WARNING: ThreadSanitizer: {what} (pid=4711)\n    #0 fill a.c:12 (a.out+0x4c1)\n")
        fixes.append(diagnose(crash_of_log(path, read_log(path)), CATALOG).findings[0].fix[0])
    assert len(set(fixes)) == len(fixes) and "lock_guard" in fixes[0]


def test_libstdcxx_itself() -> None:
    """Its debug mode's and its terminate handler's texts, of the version that is here."""
    found = [path for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu") for path in Path(folder).glob("libstdc++.so.6")]
    if not found:
        pytest.skip("no libstdc++ here")
    data = found[0].read_bytes()
    checks = sorted({text.decode() for text in re.findall(rb"\0(attempt to [^\0]{5,200})", data.replace(b"\0", b"\0\0"))})
    assert len(checks) > 20
    shown = [re.sub(r"%\d(?:\.\w+)?;", "past-the-end", text) for text in checks]
    assert [text for text in shown if kind_of(f"Error: {text}.") != "cxx-debug-check"] == []
    virtual = [text.decode() for text in re.findall(rb"\w+ virtual method called", data)]
    assert len(virtual) > 1 and [text for text in virtual if kind_of(text) != "pure-virtual"] == []
