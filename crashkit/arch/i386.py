"""i386: registers, and nothing of its instructions. Source: arch/x86/include/asm/user_32.h."""

from __future__ import annotations

from crashkit.arch.contract import Architecture


class I386(Architecture):
    """32-bit x86: register names only, no decoding of instructions."""

    name = "i386"
    machine = 3
    registers = "ebx ecx edx esi edi ebp eax ds es fs gs orig_eax eip cs eflags esp ss".split()
    program_counter = "eip"
    stack_pointer = "esp"
    frame_pointer = "ebp"
    system_call = "orig_eax"
    longest_instruction = 15
    gdb = "i386"
