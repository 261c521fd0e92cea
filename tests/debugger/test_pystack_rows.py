"""What PyStack's rows become."""

from __future__ import annotations

from crashkit.debugger.pystack.rows import _native_frame


def test_the_return_from_a_signal_handler_is_marked_as_such():
    """So that the fault is looked for below it where there is no gdb."""
    row = {"function": "__restore_rt", "file": "", "line": 0, "module": "/lib/libc.so.6", "pc": 1}
    assert _native_frame(row).trust == "signal"
    assert _native_frame({**row, "function": "walk"}).trust is None
