"""SystemError of a native function whose result does not fit its exception: Objects/call.c, _Py_CheckFunctionResult."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.pipeline import analyze

LOG = """Traceback (most recent call last):
  File "/srv/app.py", line 4, in <module>
    put('k')
  File "/srv/app.py", line 3, in put
    store.put(k)
SystemError: {}
"""


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("<built-in function put> returned NULL without setting an exception", True),
        ("<built-in function put> returned a result with an exception set", True),
        ("<built-in function put> returned a result with an error set", True),  # up to 3.9
        ("<built-in method put of PyCapsule object at 0x7f0000001000> returned NULL without setting an error", True),
        ("initialization of _store raised unreported exception", False),
        ("bad argument to internal function", False),
    ],
)
def test_it_is_known_by_the_words_of_the_interpreter(words: str, known: bool, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOG.format(words))
    found = analyze(log).findings
    assert ("native-result-and-exception" in [finding.id for finding in found]) == known
    assert not known or words.partition(" returned")[0] in found[0].fix[0]
