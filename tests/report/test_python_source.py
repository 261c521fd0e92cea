"""The colors of Python source, also where it begins or ends in the middle of something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.report.python_source import spans

SOURCE = '''
@app.route("/x")
async def load(self, x=1.5e3, *, y=0xff):
    """Words 'of' \\""" mine"""
    if x is not None and rb'\\'a' in f"{x!r:>{y}}":
        return len(x1.y2) + .5 + 3j  # in "words"
class Model(Base): pass
'''


def test_each_kind_of_word_has_its_style():
    found = [(style, text) for style, text in spans(SOURCE) if style]
    assert found == [
        ("d", "@app.route"), ("s", '"/x"'), ("k", "async"), ("k", "def"), ("f", "load"), ("b", "self"), ("n", "1.5e3"), ("n", "0xff"),
        ("s", '"""Words \'of\' \\""" mine"""'), ("k", "if"), ("k", "is"), ("k", "not"), ("k", "None"), ("k", "and"), ("s", "rb'\\'a'"),
        ("k", "in"), ("s", 'f"{x!r:>{y}}"'), ("k", "return"), ("b", "len"), ("n", ".5"), ("n", "3j"), ("c", '# in "words"'),
        ("k", "class"), ("f", "Model"), ("k", "pass"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["'''never\nclosed", "x = 'open\ny = 1", "of a string'''\nx = 1", "f(", "\\", "x = b", "é = 1", "@"])
def test_parts_of_source_keep_their_text(text):
    assert "".join(part for _, part in spans(text)) == text


def test_a_string_without_its_end_ends_with_the_line():
    assert list(spans("x = 'open\ny = 1"))[-1] == ("n", "1")


@given(st.text(alphabet="'\"\\#\n @.0e1axrfb_def class{}é", max_size=80))
def test_no_text_is_lost(text):
    assert "".join(part for _, part in spans(text)) == text
