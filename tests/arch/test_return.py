"""Where x86-64 code returns to, by following it: pieces of machine code as compilers write it."""

from __future__ import annotations

import pytest

from crashkit.arch.x86_64 import X86_64

CODE, STACK, CALLER = 0x10_0000, 0x7000_0000, 0x20_0005
ENTRY = {"rbx": 11, "rbp": 0x7000_0800, "r12": 12}
PLT, SLOT, TARGET = 0x20_1000, 0x20_4000, CODE


def returned(code: str, stack: dict[int, int], sp: int = STACK, at: int = 0) -> dict[str, int] | None:
    raw = bytes.fromhex(code)
    registers = {"rip": CODE + at, "rsp": sp, **ENTRY}

    def read(address: int, size: int) -> bytes:
        return raw[max(address - CODE, 0) : max(address - CODE + size, 0)] if address >= CODE else b""

    return X86_64().at_return(registers, read, stack.get)


@pytest.mark.parametrize(
    ("code", "depth", "saved"),
    [
        ("c3", 0, {}),
        ("58c3", 1, {}),  # pop rax
        ("4883c4185b415cc3", 5, {3: "rbx", 4: "r12"}),  # add rsp, 24; pop rbx; pop r12; ret
        ("e800000000585bc3", 2, {1: "rbx"}),  # call; pop rax; pop rbx; ret
        ("f45bc3", 1, {0: "rbx"}),  # hlt; pop rbx; ret: a check of musl's that failed
        ("5058c3", 0, {}),  # push rax; pop rax; ret
        ("488b5c24084883c410c3", 2, {1: "rbx"}),  # mov rbx, [rsp+8]; add rsp, 16; ret
        ("ebfe5bc3", None, {}),  # jmp to itself
        ("7502ebfe5bc3", 1, {0: "rbx"}),  # jne over a loop that never ends; pop rbx; ret
        ("0f0b5bc3", None, {}),  # ud2
        ("ffe0c3", None, {}),  # jmp rax
        ("4883e4f0c3", None, {}),  # and rsp, -16: by how much, nobody knows
        ("5b31dbc3", 1, {}),  # pop rbx; xor ebx, ebx; ret
    ],
)
def test_the_way_to_a_return(code: str, depth: int | None, saved: dict[int, str]) -> None:
    stack = {STACK + 8 * index: 100 + index for index in range(8)}
    if depth is not None:
        stack[STACK + 8 * depth] = CALLER
    found = returned(code, stack)
    if depth is None:
        assert found is None
        return
    known = {**ENTRY, **{name: 100 + index for index, name in saved.items()}}
    if "31db" in code:
        del known["rbx"]
    assert found == {**known, "rip": CALLER, "rsp": STACK + 8 * depth + 8}


def test_leave_takes_the_stack_pointer_from_the_frame_pointer() -> None:
    base = ENTRY["rbp"]
    found = returned("c9c3", {base: 77, base + 8: CALLER})
    assert found == {**ENTRY, "rbp": 77, "rip": CALLER, "rsp": base + 16}


@pytest.mark.parametrize(
    "code",
    [
        "554889e5c9c3",  # push rbp; mov rbp, rsp; leave; ret
        "5531ed488b2c244883c408c3",  # push rbp; xor ebp, ebp; mov rbp, [rsp]; add rsp, 8; ret
        "48896c24f831ed488b6c24f8c3",  # mov [rsp-8], rbp; xor ebp, ebp; mov rbp, [rsp-8]; ret
    ],
)
def test_what_is_stored_on_the_way_is_not_in_memory_yet(code: str) -> None:
    assert returned(code, {STACK - 8: 2, STACK: CALLER}) == {**ENTRY, "rip": CALLER, "rsp": STACK + 8}


@pytest.mark.parametrize("store", ["894424f8", "48894424f8", "48c74424f801000000", "48ff4424f8"])
def test_what_else_is_stored_is_not_known(store: str) -> None:
    """mov [rsp-8], eax / rax / 1, or inc [rsp-8]; then mov rbp, [rsp-8]; ret."""
    code = f"{store}488b6c24f8c3"
    kept = {name: value for name, value in ENTRY.items() if name != "rbp"}
    assert returned(code, {STACK - 8: 2, STACK: CALLER}) == {**kept, "rip": CALLER, "rsp": STACK + 8}


def test_a_jump_backwards() -> None:
    # ret, then the program counter: pop rbx; jmp to the ret
    assert returned("c3" + "90" * 300 + "5be9cdfeffff", {STACK: 5, STACK + 8: CALLER}, at=301) == {
        **ENTRY,
        "rbx": 5,
        "rip": CALLER,
        "rsp": STACK + 16,
    }


def test_without_memory_nothing_is_known() -> None:
    assert returned("c3", {}) is None
    assert returned("", {STACK: CALLER}) is None
    assert X86_64().at_return({}, lambda address, size: b"", {}.get) is None


@pytest.mark.parametrize(
    ("call", "stub", "called"),
    [
        ("e8fbffdfff", "", None),  # what it names is not there
        ("e8fb0f0000", "ff25fa2f0000", TARGET),  # through the procedure linkage table
        ("e8fb0f0000", "f30f1efaf2ff25f52f0000", TARGET),
        ("ff15fb3f0000", "", TARGET),  # through the global offset table
        ("ffd0", "", 0),
        ("ff5308", "", 0),
        ("9090909090", "", None),
    ],
)
def test_what_a_call_called(call: str, stub: str, called: int | None) -> None:
    before, behind = bytes.fromhex(call), bytes.fromhex(stub)

    def read(address: int, size: int) -> bytes:
        data = b"\x90" * 16 + before
        if address == PLT:
            return behind[:size]
        return data[address - (CALLER - len(data)) :][:size] if CALLER - len(data) <= address < CALLER else b""

    assert X86_64().called_before(CALLER, read, {SLOT: TARGET}.get) == called
