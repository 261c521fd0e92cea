"""What a log says of the processes of a job: each one's own words, and those of launchers and watchdogs about it. One pass.

Formats: torch 2.2 to 2.13 (elastic agent, exception hook, ProcessGroupNCCL and ProcessGroupGloo), srun and slurmstepd 22 to 24, Open MPI 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Optional, Union

from crashkit.evidence.job import listed, paths, services
from crashkit.evidence.text import faulthandler, traceback
from crashkit.evidence.text.faulthandler import FaultDump
from crashkit.evidence.text.prefixes import clean
from crashkit.evidence.text.skim import telling_lines
from crashkit.evidence.text.traceback import Traceback
from crashkit.job.word import Who, Word
from crashkit.model import JobPlace
from crashkit.naming.own_code import python_frames
from crashkit.naming.signals import SIGABRT, signal_name

SIGKILL, SIGTERM = 9, 15
PATIENCE = 40
"""Lines of other processes between two of one text."""
MOST_WORDS = 50_000
LONGEST_TEXT = 1000

_LAUNCHER = re.compile(r"^[A-Z]\d{4} \d\d:\d\d:\d\d\.\d+ +(?P<launcher>\d+) ")
_TIME = re.compile(r"^[A-Z]\d{4} (?P<time>\d\d:\d\d:\d\d\.\d+) ")
_BOX_FIRST = "Root Cause (first observed failure):"
_BOX = "Failures:"
_BOX_FIELD = re.compile(r"^ {1,4}(?P<name>time|host|rank|exitcode|error_file|traceback) *: ?(?P<value>.*)$")
_LOCAL = re.compile(r"^(?P<rank>\d{1,9}) \(local_rank: (?P<local>\d{1,9})\)")
_EXIT = re.compile(r"^(?P<status>-?\d{1,9}) \(pid: (?P<pid>\d{1,9})\)")

_Made = Callable[[re.Match[str], Who], Word]


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text is not None else None


def _about(match: re.Match[str], speaker: Who) -> Who:
    """The process that a line is about: as the line says, else who wrote it."""
    told = match.groupdict()
    rank, local, pid, host = (_number(told.get("rank")), _number(told.get("local")), _number(told.get("pid")), told.get("host"))
    if (rank, local, pid) == (None, None, None):
        return speaker
    return Who(rank=rank, local_rank=local, pid=pid, host=host)


def _sizes(text: Optional[str]) -> tuple[tuple[int, ...], ...]:
    return (tuple(int(number) for number in re.findall(r"\d{1,18}", text)),) if text is not None else ()


def _made(kind: str) -> _Made:
    def make(match: re.Match[str], speaker: Who) -> Word:
        told = match.groupdict()
        return Word(
            _about(match, speaker),
            kind,
            text=match.string.strip()[:LONGEST_TEXT],
            number=_number(told.get("number")),
            completed=_number(told.get("completed")),
            operation=told.get("operation"),
            sizes=_sizes(told.get("sizes")),
            launcher=told.get("launcher"),
            group=told.get("group"),
        )

    return make


def _thread_ended(match: re.Match[str], speaker: Who) -> Word:
    """The watchdog's thread ended by an error that it met, such as a kernel's."""
    return Word(_about(match, speaker), "exception", text=match["said"].strip()[:LONGEST_TEXT])


def _by_deepspeed(match: re.Match[str], speaker: Who) -> Word:
    """DeepSpeed's launcher tells each process's pid and local rank as it starts it.

    Beside the status of the process that it found dead first, it shows the command of the last one that it started (0.19.8): whose status
    it is, nothing tells.
    """
    said = _made("exit" if match.groupdict().get("number") else "alive")(match, speaker)
    return said._replace(launcher="deepspeed", who=Who() if said.kind == "exit" else said.who)


_RANK = r"(?:\[(?:PG (?:ID )?\d+ PG GUID (?P<group>[^\]]{0,200}?) )?Rank (?P<rank>\d{1,9})\] )?"
_THREAD_ENDED = "watchdog thread terminated with exception: "
# The text that such a line contains; the pattern; what it says.
_LINES: tuple[tuple[str, re.Pattern[str], _Made], ...] = tuple(
    (text, re.compile(pattern), make)
    for text, pattern, make in (
        ("closing signal", r"Sending process (?P<pid>\d{1,9}) closing signal SIG\w+", _made("stopped")),
        ("forcefully exiting via", r"Unable to shutdown process (?P<pid>\d{1,9}) via \d+, forcefully exiting via", _made("stopped")),
        (
            "(exitcode: ",
            r"failed \(exitcode: (?P<number>-?\d{1,9})\) local_rank: (?P<local>\d{1,9}) \(pid: (?P<pid>\d{1,9})\)",
            _made("exit"),
        ),
        (
            "Watchdog caught collective",
            _RANK + r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d{1,18}), OpType=(?P<operation>\w+)"
            r"(?:, NumelIn=(?P<sizes>\d{1,18}))?",
            _made("watchdog"),
        ),
        (
            _THREAD_ENDED,
            _RANK + r"Process group watchdog thread terminated with exception: (?P<said>[^\n]{1,2000})",
            _thread_ended,
        ),
        (
            "Terminating the process after attempting to dump",
            _RANK + r"Terminating the process after attempting to dump",
            _made("given-up"),
        ),
        ("An unbatched P2P op", _RANK + r"An unbatched P2P op \(send/recv\) was called", _made("pair")),
        (
            "last completed",
            _RANK[:-2] + r"[^\n]{0,400}?)?[Ll]ast enqueued (?:NCCL )?work: (?P<number>-?\d{1,18}), last completed (?:NCCL )?work: "
            r"(?P<completed>-?\d{1,18})",
            _made("progress"),
        ),
        # deepspeed/launcher/launch.py
        (
            "spawned with command: ",
            r"process (?P<pid>\d{1,9}) spawned with command: \[[^\n]{0,4000}'--local_rank=(?P<local>\d{1,9})'",
            _by_deepspeed,
        ),
        (
            "exits with return code = ",
            r"sigkill_handler\][^\n]{0,4000}\] exits with return code = (?P<number>-?\d{1,9})",
            _by_deepspeed,
        ),
        ("Killed process ", r"Killed process (?P<pid>\d{1,9}) \(", _made("killed")),
    )
)
# srun: `tasks 0,2-5: Terminated`, in the words of strsignal(3). Once it has said `Terminating`, it ends the others.
_SRUN = re.compile(
    r"^srun: error: (?P<host>[^\s:]{1,200}): tasks? (?P<ranks>\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?){0,4000}): (?P<end>[^\n]{1,100})"
)
_EXITED = re.compile(r"Exited with exit code (\d{1,5})")
_ENDS_STEP = ("Terminating StepId=", "srun: Terminating job step ", "srun: Job step aborted: ", " CANCELLED AT ")
"""From these on, srun or somebody else ends the tasks: SIGTERM first, SIGKILL after KillWait."""
_SHELL = 128
"""A shell, and `crashkit run`, exit with this and the signal's number."""
_MOST_RANKS = 100_000
_IN_WORDS = {
    **{name.replace("-", " "): number for name, number in faulthandler.SIGNALS.items()},
    "Killed": 9,
    "Terminated": SIGTERM,
    "Hangup": 1,
    "Interrupt": 2,
    "Quit": 3,
    "Trace/breakpoint trap": 5,
    "Bad system call": 31,
    "CPU time limit exceeded": 24,
    "File size limit exceeded": 25,
    "User defined signal 1": 10,
    "User defined signal 2": 12,
}
_NOTICED = re.compile(
    r"noticed that process rank (?P<rank>\d{1,9}) with PID (?P<pid>\d{1,9}) on node (?P<host>\S{1,99}) exited on signal (?P<number>\d{1,3})"
)
# TORCH_DISTRIBUTED_DEBUG=DETAIL: ProcessGroupWrapper compares the calls of all ranks.
_DIFFERS = re.compile(
    r"Rank (?P<rank>\d{1,9}) is running collective: CollectiveFingerPrint\(SequenceNumber=(?P<number>\d{1,18}), OpType=(?P<operation>\w+)"
    r"(?:, TensorShape=\[(?P<sizes>[\d, ]{0,400})\])?"
)
_ABSENT = re.compile(r"Ranks? (?P<ranks>\d{1,9}(?:, ?\d{1,9}){0,4000}) failed to pass monitoredBarrier")
_FRAME = re.compile(r"^#\d{1,3} (?P<function>\S{1,200}) from (?P<file>\S[^\n]{0,4000}):(?P<line>\d{1,9})$")
_STACK = "Stack trace of the failed collective"

_TEXTS = tuple(
    dict.fromkeys(
        (
            *(text for text, _, _ in _LINES),
            *faulthandler.FORMAT.openers,
            *traceback.FORMAT.openers,
            _BOX,
            _BOX_FIRST,
            "CollectiveFingerPrint(",
            "noticed that process rank",
            "failed to pass monitoredBarrier",
            _STACK,
            "srun: error: ",
            *_ENDS_STEP,
            *services.TEXTS,
        )
    )
)


def _ended(text: str) -> Optional[int]:
    """The status of a task whose end srun tells so, negative for a signal's; None if it tells nothing of the kind."""
    if match := _EXITED.match(text):
        status = int(match[1])
        return _SHELL - status if _SHELL < status < 2 * _SHELL and signal_name(status - _SHELL).startswith("SIG") else status
    if text.startswith("Out Of Memory"):
        return -SIGKILL
    number = _IN_WORDS.get(text.partition(" (")[0].strip())
    return -number if number is not None else None


def _numbered(text: str) -> Iterator[int]:
    """`0,2-5`: the numbers."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), min(int(last or first), int(first) + _MOST_RANKS) + 1)


class _Box:
    """The launcher's summary, one entry a process (torch/distributed/elastic/multiprocessing/errors/__init__.py)."""

    def __init__(self, first: bool) -> None:
        self.first = first
        self.fields: dict[str, str] = {}
        self.reader: Optional[Traceback] = None
        self.ended = False
        self.idle = 0

    def feed(self, text: str) -> Iterator[Word]:
        if text.startswith("=====") and self.fields:
            self.ended = True
            yield from self.close()
        elif match := _BOX_FIELD.match(text):
            name, value = match["name"], match["value"].strip()
            self.idle = 0
            if name in self.fields:
                yield from self.close()
            self.fields[name] = value
            if name == "traceback" and value.startswith("Traceback (most recent call last)"):
                self.reader = Traceback(first=False)
        elif self.reader is not None:
            if not self.reader.feed(text[2:] if text.startswith("  ") else text):
                self.idle += 1
        else:
            self.idle += 1
        if self.idle > PATIENCE:
            self.ended = True

    def close(self) -> Iterator[Word]:
        """What the entry says."""
        fields, reader, self.fields, self.reader = self.fields, self.reader, {}, None
        place, status = _LOCAL.match(fields.get("rank", "")), _EXIT.match(fields.get("exitcode", ""))
        if place is None or status is None:
            return
        who = Who(int(place["rank"]), int(place["local"]), int(status["pid"]), fields.get("host") or None)
        yield Word(who, "exit", number=int(status["status"]), time=fields.get("time"), text=fields.get("traceback", ""), launcher="box")
        if self.first:
            yield Word(who, "first", time=fields.get("time"))
        if reader is not None:
            yield from _of_traceback(who, reader)


def _of_traceback(who: Who, reader: Traceback) -> Iterator[Word]:
    reader.finish()
    if reader.exception is not None:
        text = reader.last_line.strip()[:LONGEST_TEXT]
        yield Word(who, "exception", text=text, thread=reader.thread())


def _of_dump(who: Who, dump: FaultDump) -> Iterator[Word]:
    """Of a fatal dump the thread that failed; of another one, all say where the process stood."""
    threads = dump.threads()
    if dump.message is not None:
        crashed = next((thread for thread in threads if thread.crashed), None) or next(iter(threads), None)
        # faulthandler shows the main thread last.
        main = threads[-1] if threads and threads[-1] is not crashed and not (crashed and python_frames(crashed)) else None
        yield Word(who, "fatal", text=f"Fatal Python error: {dump.message}"[:LONGEST_TEXT], number=dump.signal, thread=crashed, main=main)
    elif threads:
        # faulthandler shows the main thread last, and marks the current one.
        yield Word(who, "stood", text="its stack was printed", thread=threads[-1])


_Reader = Union[Traceback, FaultDump, _Box]


class _Open:
    def __init__(self, reader: _Reader, line: int, who: Who) -> None:
        self.reader, self.line, self.who = reader, line, who
        self.missed = 0


class LogWords:
    """Collects the words of one log. `speaker` wrote it, if its path tells that; lines with a prefix name their own."""

    def __init__(self, path: Path, speaker: Who = Who()) -> None:  # noqa: B008 (immutable)
        self._path = str(path)
        self._speaker = speaker
        self._open: dict[str, _Open] = {}
        self._call: Optional[tuple[str, Who]] = None
        """Whose failed collective's stack is being printed. Only its first line has a prefix."""
        self._labels: dict[str, Who] = {}
        self._dying: dict[Who, None] = {}
        """Who said that it is about to abort. What faulthandler prints then has no prefix."""
        self._step_ends = False
        """Whether srun or SLURM has begun to end the tasks."""
        self.words: list[Word] = []

    def read(self, file: BinaryIO) -> list[Word]:
        """The words, in the log's order; at most MOST_WORDS."""
        self._services = services.Services(file)
        for number, _, raw in telling_lines(file, _TEXTS, lambda: bool(self._open or self._call)):
            name, text = self._services.strip(clean(raw))
            self._take(number, name, text)
            if len(self.words) >= MOST_WORDS:
                break
        for name in list(self._open):
            self._close(name)
        self.words.sort(key=lambda word: word.line)
        self.words = services.under_one_name(self.words) or listed.words(file)
        return self.words

    def _who(self, name: str) -> Who:
        if not name:
            return self._speaker
        found = self._labels.get(name)
        if found is None:
            found = self._labels[name] = paths.label(name)._replace(attempt=self._speaker.attempt)
        return found

    def _take(self, number: int, name: str, text: str) -> None:
        for other in [one for one in self._open if one != name]:
            self._miss(other)
        current = self._open.get(name)
        if current is not None and self._feed(name, current, number, text):
            return
        who = self._who(name)
        reader = self._opens(text)
        if reader is not None:
            self._close(name)
            if not who.is_known and isinstance(reader, FaultDump) and len(self._dying) == 1 and reader.signal == SIGABRT:
                who = self._dying.popitem()[0]
            self._open[name] = _Open(reader, number, who)
            return
        if current is not None and name in self._open:
            self._miss(name)
        self._line(number, name, who, text)

    def _feed(self, name: str, current: _Open, number: int, text: str) -> bool:
        reader = current.reader
        if isinstance(reader, _Box):
            if text.strip() == _BOX_FIRST:
                self._say(number, reader.close())
                reader.first = True
                return True
            self._say(number, reader.feed(text))
            if reader.ended:
                del self._open[name]
            return True
        if not reader.feed(text):
            return False
        current.missed = 0
        if reader.ended:
            self._close(name)
        return True

    @staticmethod
    def _opens(text: str) -> Optional[_Reader]:
        stripped = text.strip()
        if stripped in (_BOX, _BOX_FIRST):
            return _Box(stripped == _BOX_FIRST)
        if any(opener in text for opener in traceback.FORMAT.openers):
            return traceback.FORMAT.opens(text.lstrip(" "))
        if any(opener in text for opener in faulthandler.FORMAT.openers):
            return faulthandler.FORMAT.opens(text.lstrip(" "))
        return None

    def _line(self, number: int, name: str, who: Who, text: str) -> None:
        if self._call is not None and name in (self._call[0], ""):
            self._stack_line(number, self._call[1], text)
        if _STACK in text:
            rank = re.search(r"Rank (\d{1,9})\]", text)
            self._call = name, Who(rank=int(rank[1])) if rank else who
        for known, pattern, make in _LINES:
            if known in text and (match := pattern.search(text)):
                word = self._launched(make(match, who), text)
                ends = word.kind == "given-up" or _THREAD_ENDED in text
                if ends:
                    self._dying[word.who] = None
                # The watchdog's thread ended by the time-out that it saw.
                self._say(number, [word, word._replace(kind="given-up")] if ends and word.kind == "watchdog" else [word])
                return
        if said := list(self._services.words(name, text)):
            self._say(number, said)
        elif any(known in text for known in _ENDS_STEP):
            self._step_ends = True
        elif match := _SRUN.match(text):
            self._say(number, self._tasks(match))
        elif "CollectiveFingerPrint(" in text:
            self._say(number, (_made("differs")(match, who) for match in _DIFFERS.finditer(text)))
        elif match := _ABSENT.search(text):
            self._say(
                number, [Word(Who(rank=int(rank)), "absent", text=text[:LONGEST_TEXT]) for rank in re.findall(r"\d+", match["ranks"])]
            )
        elif match := _NOTICED.search(text):
            word = _made("exit")(match, who)
            self._say(number, [word._replace(number=-(word.number or 0), launcher="mpirun")])

    def _tasks(self, match: re.Match[str]) -> Iterator[Word]:
        """What srun says of its tasks. SIGTERM is its own, or that of whoever cancels the job."""
        status = _ended(match["end"])
        if status is None:
            return
        stopped = status == -SIGTERM or (self._step_ends and status == -SIGKILL)
        text = match.string.strip()[:LONGEST_TEXT]
        for rank in islice(_numbered(match["ranks"]), _MOST_RANKS):
            word = Word(Who(rank=rank, host=match["host"]), "exit", text=text, number=status, launcher="srun")
            yield word
            if stopped:
                yield word._replace(kind="stopped", number=None)
            elif match["end"].startswith("Out Of Memory"):
                yield word._replace(kind="killed", number=None)

    @staticmethod
    def _launched(word: Word, text: str) -> Word:
        told, when = _LAUNCHER.match(text), _TIME.match(text)
        return word._replace(launcher=word.launcher or (told["launcher"] if told else None), time=when["time"] if when else None)

    def _stack_line(self, number: int, who: Who, text: str) -> None:
        """`#0 all_gather from FILE:LINE`: innermost first; the first line that is no package's is the call site."""
        if not (match := _FRAME.match(text.strip())):
            self._call = None
            return
        place = JobPlace(function=match["function"], file=match["file"], line=int(match["line"]))
        self._say(number, [Word(who, "call", where=place)])

    def _miss(self, name: str) -> None:
        # The summary numbers its entries, which look like prefixes; it has a patience of its own.
        self._open[name].missed += not isinstance(self._open[name].reader, _Box)
        if self._open[name].missed > PATIENCE:
            self._close(name)

    def _close(self, name: str) -> None:
        closing = self._open.pop(name, None)
        if closing is None:
            return
        reader = closing.reader
        if isinstance(reader, Traceback):
            self._say(closing.line, _of_traceback(closing.who, reader))
            # What torch's exceptions say of other ranks.
            self._line(closing.line, name, closing.who, reader.last_line)
        elif isinstance(reader, FaultDump):
            self._say(closing.line, _of_dump(closing.who, reader))
        else:
            self._say(closing.line, reader.close())

    def _say(self, number: int, words: Iterator[Word] | list[Word]) -> None:
        self.words += [word._replace(path=self._path, line=number) for word in words]
