"""Finds the significant lines of a file of any size in one pass, with bounded memory.

A multi-pattern search in compiled code does the work; Python sees only the lines that contain one
of the texts. A text that floods the file is followed for its first lines and again near the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import BinaryIO

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from crashkit.limits import LONGEST_LINE

CHUNK = 1 << 20
LONGEST_PIECE = 4 << 20
"""Bytes without a line end that are kept in memory at once."""
OVERLAP = 256
"""Bytes shared by two pieces of one endless line: longer than any text searched for."""
FLOOD = 2000
"""Lines after which a text is no longer followed."""
MOST_ATTENDED = 300_000
"""Lines before the tail that are examined only because they follow others."""
TAIL = 2 << 20
"""Bytes at the end of the file in which every text is followed again."""
_GROUP = 32
"""Texts per search: with more of them, it loses the vectorised search (Teddy), which took 0.3 s a GB where an automaton took 2 s."""

_BEFORE_HIT = 8 << 10


class _Search:
    def __init__(self, texts: Sequence[bytes]) -> None:
        groups = [list(texts[start : start + _GROUP]) for start in range(0, len(texts), _GROUP)]
        self._groups = [(group, BytesAhoCorasick(group, matchkind=MatchKind.LeftmostFirst)) for group in groups]

    def hits(self, chunk: bytes) -> list[tuple[int, bytes]]:
        found = [(start, group[index]) for group, automaton in self._groups for index, start, _ in automaton.find_matches_as_indexes(chunk)]
        found.sort()
        return found


@lru_cache(maxsize=8)
def _search_for(texts: tuple[bytes, ...]) -> _Search:
    """Building it takes as long as a small log."""
    return _Search(texts)


def telling_lines(file: BinaryIO, texts: Sequence[str], attending: Callable[[], bool]) -> Iterator[tuple[int, int, bytes]]:
    """Yield the lines that contain one of `texts`, and each following line while `attending()`, with their numbers from 1 and offsets.

    `file` must be seekable. Lines over LONGEST_LINE bytes are cut around the match.
    """
    everything = tuple(text.encode() for text in texts)
    search = _search_for(everything)
    tail = file.seek(0, 2) - TAIL
    seen: Counter[bytes] = Counter()
    most = FLOOD
    attended = 0
    number = 1
    for offset, chunk, limit in _chunks(file):
        if offset + limit >= tail and (seen or attended):
            most = TAIL
            attended = -TAIL
            search = _search_for(everything)
            tail = 1 << 62
        position = 0
        hits = iter(search.hits(chunk))
        hit, text = next(hits, (-1, b""))
        flooded = False
        while position < limit:
            if attended < MOST_ATTENDED and attending():
                start = position
                attended += 1
            else:
                while 0 <= hit < position or seen[text] > most:
                    hit, text = next(hits, (-1, b""))
                if not 0 <= hit < limit:
                    break
                seen[text] += 1
                flooded = flooded or seen[text] > most
                start = chunk.rfind(b"\n", position, hit) + 1 or position
            end = chunk.find(b"\n", start, limit)
            number += chunk.count(b"\n", position, start)
            whole = end >= 0
            end = end if whole else limit
            yield number, offset + start, _around(chunk, start, end, hit)
            number += whole
            position = end + whole
        number += chunk.count(b"\n", position, limit)
        if flooded:
            search = _search_for(tuple(text for text in everything if seen[text] <= most))


def _around(chunk: bytes, start: int, end: int, hit: int) -> bytes:
    if end - start > LONGEST_LINE:
        if start <= hit < end:
            start = max(start, hit - _BEFORE_HIT)
        end = min(end, start + LONGEST_LINE)
    return chunk[start:end]


def _chunks(file: BinaryIO) -> Iterator[tuple[int, bytes, int]]:
    """Yield pieces of the file, each with its offset and the length of its complete lines."""
    offset = 0
    size = CHUNK
    while True:
        file.seek(offset)
        chunk = file.read(size)
        if not chunk:
            return
        last = len(chunk) < size
        limit = len(chunk) if last else chunk.rfind(b"\n") + 1
        if not limit:
            if size < LONGEST_PIECE:
                size = LONGEST_PIECE
                continue
            limit = len(chunk) - OVERLAP
        yield offset, chunk, limit
        offset += limit
        size = CHUNK
