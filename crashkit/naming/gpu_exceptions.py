"""Names and meaning of GPU exceptions (CUDBGException_t in cudadebugger.h of CUDA 13.4; table of exception codes in the cuda-gdb manual).

Codes 1, 2, 3, 11, 13, 15 and 16 are no longer reported since CUDA 13.1. The manual has 17 and 18 the other way round: driver 580 prints
CLUSTER_BLOCK_NOT_PRESENT (18) for a block that has ended, as the header says.
"""

from __future__ import annotations

import msgspec


class Meaning(msgspec.Struct, frozen=True):
    """One exception."""

    name: str
    words: str
    kind: str
    """memory: an address; misaligned; cluster: another block of a cluster; copy: a bulk copy or its barrier; tensor: tensor memory;
    heap: the device's; ecc: damaged data; driver: it is too old; assert; trap; stack; code: an instruction; other."""


_MEANINGS = {
    1: Meaning("LANE_ILLEGAL_ADDRESS", "illegal address", "memory"),
    2: Meaning("LANE_USER_STACK_OVERFLOW", "stack overflow of a GPU thread", "stack"),
    3: Meaning("DEVICE_HARDWARE_STACK_OVERFLOW", "hardware stack overflow", "stack"),
    4: Meaning("WARP_ILLEGAL_INSTRUCTION", "illegal instruction", "code"),
    5: Meaning("WARP_OUT_OF_RANGE_ADDRESS", "address outside shared or local memory", "memory"),
    6: Meaning("WARP_MISALIGNED_ADDRESS", "misaligned address", "misaligned"),
    7: Meaning("WARP_INVALID_ADDRESS_SPACE", "invalid address space", "memory"),
    8: Meaning("WARP_INVALID_PC", "jump to an invalid address", "code"),
    9: Meaning("WARP_HARDWARE_STACK_OVERFLOW", "hardware stack overflow", "stack"),
    10: Meaning("DEVICE_ILLEGAL_ADDRESS", "illegal address", "memory"),
    11: Meaning("LANE_MISALIGNED_ADDRESS", "misaligned address", "misaligned"),
    12: Meaning("WARP_ASSERT", "assertion failed", "assert"),
    13: Meaning("LANE_SYSCALL_ERROR", "corrupt device heap or invalid free", "heap"),
    14: Meaning("WARP_ILLEGAL_ADDRESS", "illegal address", "memory"),
    15: Meaning("LANE_NONMIGRATABLE_ATOMSYS", "atomic access to memory that cannot migrate", "memory"),
    16: Meaning("LANE_INVALID_ATOMSYS", "invalid atomic access to system memory", "memory"),
    17: Meaning("CLUSTER_OUT_OF_RANGE_ADDRESS", "address outside the cluster's shared memory", "cluster"),
    18: Meaning("CLUSTER_BLOCK_NOT_PRESENT", "access to a block of the cluster that has ended", "cluster"),
    19: Meaning("WARP_STACK_CANARY", "stack of a GPU thread overwritten", "stack"),
    20: Meaning("WARP_TMEM_ACCESS_CHECK", "invalid access to tensor memory", "tensor"),
    21: Meaning("WARP_TMEM_LEAK", "tensor memory was not released", "tensor"),
    22: Meaning("WARP_CALL_REQUIRES_NEWER_DRIVER", "call that needs a newer driver", "driver"),
    23: Meaning("WARP_MISALIGNED_PC", "jump to a misaligned address", "code"),
    24: Meaning("WARP_PC_OVERFLOW", "jump to an invalid address", "code"),
    25: Meaning("WARP_MISALIGNED_REG", "misaligned register", "code"),
    26: Meaning("WARP_ILLEGAL_INSTR_ENCODING", "illegal instruction", "code"),
    27: Meaning("WARP_ILLEGAL_INSTR_PARAM", "illegal instruction operand", "code"),
    28: Meaning("WARP_OUT_OF_RANGE_REGISTER", "register out of range", "code"),
    29: Meaning("WARP_INVALID_CONST_ADDR_LDC", "address outside a constant bank", "memory"),
    30: Meaning("WARP_MMU_FAULT", "illegal address", "memory"),
    31: Meaning("WARP_ARRIVE", "wrong arrival at an mbarrier", "copy"),
    32: Meaning("CLUSTER_POISON", "uncorrectable memory error", "ecc"),
    33: Meaning("WARP_API_STACK_ERROR", "stack error in a call of the device API", "stack"),
    34: Meaning("WARP_BLOCK_NOT_PRESENT", "access to a block that has ended", "cluster"),
    35: Meaning("WARP_USER_STACK_OVERFLOW", "stack overflow of a GPU thread", "stack"),
    36: Meaning("TMA_SYSCALL", "error in a bulk copy (TMA)", "copy"),
}

_UNKNOWN = 0xFFFFFFFF
_MEANINGS[_UNKNOWN] = Meaning("UNKNOWN", "exception that the driver could not name", "other")

TRAP = Meaning("TRAP", "trap instruction", "trap")
"""`__trap()`: the warp is stopped, without a code. cuda-gdb shows SIGTRAP."""

_BY_NAME = {meaning.name: meaning for meaning in (*_MEANINGS.values(), TRAP)}


def exception(code: int) -> Meaning:
    """What a code means; unknown ones are named as cuda-gdb numbers them: CUDA_EXCEPTION_99."""
    return _MEANINGS.get(code) or Meaning(f"CUDA_EXCEPTION_{code}", f"exception {code}, which crashkit does not know", "other")


def meaning_of(name: str) -> Meaning:
    """What an exception of that name means; of one that is not known, the name in lower case."""
    return _BY_NAME.get(name) or Meaning(name, name.lower().replace("_", " "), "other")
