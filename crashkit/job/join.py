"""Puts together what was said of a job's processes: how each ended, which failed first, and who only followed. Pure.

What decides, in this order: exit statuses, whom the launcher stopped, sequence numbers of collectives, and only then the order of lines.
Times of different hosts are never compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import NamedTuple, Optional

from msgspec.structs import replace

from crashkit.job import classes, collectives
from crashkit.job.collectives import Progress, Seen
from crashkit.job.operations import POINT_TO_POINT, first_own, has_called, of_thread, operation, place_of, stood_in, waits
from crashkit.job.recording import Recording
from crashkit.job.sentences import ranks, what_happened
from crashkit.job.word import LISTINGS, SERVICES, Who, Word
from crashkit.model import Job, JobCause, JobCollective, JobPlace, JobProcess, Thread
from crashkit.naming.own_code import python_frames
from crashkit.naming.signals import REQUESTS, SIGABRT, signal_name

SIGINT, SIGKILL, SIGSEGV, SIGTERM = 2, 9, 11, 15
_FAULTS = frozenset({4, 5, 6, 7, 8, 11, 31})
_ADDED = frozenset({"killed", "alive", "stood"})
"""What only adds to a process. A launcher that was looked at while it lived is none of the job's."""
_MOST_LISTED = 4
MOST_ALSO = 16
MOST_WORLD = 1_000_000
"""Ranks that a job may say it has."""

Key = tuple[str, object]


class Joined(NamedTuple):
    """The job, and what is known of the process that failed first."""

    job: Job
    words: tuple[Word, ...]
    """Of that process."""
    thread: Optional[Thread]
    """Its stack, if one was printed."""


def join(words: Sequence[Word], recordings: Sequence[Recording] = (), kind: Optional[str] = None) -> Optional[Joined]:
    """The job that these words are about; None if they tell of fewer than two processes."""
    attempts = _attempts(words)
    members = sorted({rank for recording in recordings for name in recording.groups for rank in recording.members(name)})
    rounds = [_Round(number, several) for number, several in sorted(attempts.items())] or [_Round(0, ())]
    rounds[-1].add(recordings, members)
    if not any(one.is_job for one in rounds):
        return None
    judged = [one.judge() for one in rounds]
    # An attempt in which nobody failed by itself suffers from the one before.
    last = next((one for one in reversed(judged) if one.cause is not None and one.cause.confidence != "possible"), None)
    main = last or next((one for one in reversed(judged) if one.cause is not None), judged[-1])
    several = len(judged) > 1
    also = [cause for one in judged for cause in ((*one.also,) if one is main else (one.cause, *one.also)) if cause is not None]
    person = main.person
    everyone = [_numbered(process, several, one is main) for one in judged for process in one.processes]
    world = {process.rank for process in everyone if process.rank is not None}
    job = Job(
        kind=kind or _kind(words, recordings),
        # Of one rank alone, nothing says how many there were.
        world_size=(max(len(members), len(world)) or len(judged[-1].processes)) if len(everyone) > 1 else None,
        attempts=len(judged) if several else None,
        processes=tuple(everyone),
        root_cause=_of_attempt(main.cause, several),
        also=tuple(cause for one in also[:MOST_ALSO] if (cause := _of_attempt(one, several)) is not None),
        collectives=tuple(main.collectives),
    )
    return Joined(job, tuple(person.words) if person else (), person.thread if person else None)


def _numbered(process: JobProcess, several: bool, is_main: bool) -> JobProcess:
    role = "failed" if process.role == "root-cause" and not is_main else process.role
    return replace(process, attempt=process.attempt if several else None, role=role)


def _of_attempt(cause: Optional[JobCause], several: bool) -> Optional[JobCause]:
    return cause if several or cause is None else replace(cause, attempt=None)


def _kind(words: Iterable[Word], recordings: Sequence[Recording]) -> Optional[str]:
    launchers = {word.launcher for word in words if word.launcher}
    if service := next((name for name in (*SERVICES, *LISTINGS) if name in launchers), None):
        return service
    if "srun" in launchers:
        return "slurm"
    if "mpirun" in launchers:
        return "mpi"
    if "deepspeed" in launchers:
        return "deepspeed"
    if launchers or any(word.kind == "stopped" for word in words):
        return "torchrun"
    return "torch" if recordings or any(word.kind in ("watchdog", "progress") for word in words) else None


def _attempts(words: Sequence[Word]) -> dict[int, list[Word]]:
    """The words by attempt: torchrun says `failed (exitcode: ...)` at the end of each; its last one is about the last attempt.

    A log that was kept while the job went on ends before that: then the words of a later attempt are already there.
    """
    latest = max((word.who.attempt for word in words if word.who.attempt is not None), default=0)
    ends: defaultdict[tuple[str, Optional[str]], list[int]] = defaultdict(list)
    for word in words:
        if word.kind == "exit" and word.launcher and word.launcher.isdecimal():
            ends[word.path, word.launcher].append(word.line)
    limits: dict[str, list[int]] = {}
    for (path, _), lines in ends.items():
        for number, line in enumerate(sorted(lines)[: max(len(lines) - 1, latest)]):
            several = limits.setdefault(path, [])
            if number < len(several):
                several[number] = max(several[number], line)
            else:
                several.append(line)
    found: defaultdict[int, list[Word]] = defaultdict(list)
    for word in words:
        found[word.who.attempt if word.who.attempt is not None else bisect_left(limits.get(word.path, []), word.line)].append(word)
    return dict(found)


class _Person:
    """One process, with everything that is said of it."""

    def __init__(self, who: Who) -> None:
        self.who = who
        self.words: list[Word] = []

    def hear(self, word: Word) -> None:
        self.words.append(word)
        told = {name: value for name, value in word.who._asdict().items() if getattr(self.who, name) is None}
        self.who = self.who._replace(**told)

    def of(self, *kinds: str) -> list[Word]:
        return [word for word in self.words if word.kind in kinds]

    @property
    def exit(self) -> Optional[int]:
        """What the launcher says; else what its dump or its exception means."""
        told = next((word.number for word in self.of("exit")), None)
        if told is None and (fatal := next((word.number for word in self.of("fatal") if word.number), None)):
            return -fatal
        return told

    @property
    def stopped(self) -> bool:
        return bool(self.of("stopped"))

    @property
    def last_words(self) -> Optional[Word]:
        """The first fatal dump, else the last exception that is its own, else the last one.

        An exception ended the process if the dump shows no Python frame: threads of C++ that still ran when it exited can abort it.
        """
        # A crash folder says the same as the dump in its log, without the stack.
        several = self.of("fatal")
        fatal = next((word for word in several if word.has_stack and word.number == several[0].number), next(iter(several), None))
        told = self.of("exception")
        own = [word for word in told if classes.of_exception(word.text) == classes.OWN]
        if fatal is not None and not (fatal.number == SIGABRT and told and place_of(fatal.thread) is None):
            return fatal
        return next(reversed(own or told), None)

    def may_have_said(self, word: Word) -> bool:
        """Whether it said nothing else, or only what a crash folder without a stack tells."""
        known = self.last_words
        return known is None or (known.kind == word.kind == "fatal" and not known.has_stack)

    @property
    def thread(self) -> Optional[Thread]:
        spoken = self.last_words
        if spoken is not None and spoken.main is None and spoken.thread is not None:
            return spoken.thread
        # Where a thread of C++ ended the process, this is where Python stood.
        stacks = (*(word.main for word in self.of("fatal")), *(word.thread for word in reversed(self.of("stood"))))
        return next((stack for stack in stacks if stack is not None), spoken.thread if spoken is not None else None)

    @property
    def _lived_on(self) -> bool:
        """Whether it is a service that said something of an exception and ran on, until it was stopped or the log ends."""
        ends = [word.number for word in self.of("exit") if word.launcher in SERVICES]
        if not ends:
            return bool(self.of("lives"))
        return self.stopped and ends[0] in (-SIGTERM, -SIGKILL, -SIGINT)

    @property
    def where(self) -> Optional[JobPlace]:
        return place_of(self.thread) or first_own(word.where for word in self.of("call") if word.where is not None)

    @property
    def failure(self) -> str:
        """own (it failed for a reason of its own), weak (it ended without saying why), peer, stopped, ended, or silent."""
        spoken, status = self.last_words, self.exit
        gave_up = self.of("given-up") and not (spoken and spoken.kind == "exception" and classes.of_exception(spoken.text) == classes.OWN)
        # A second signal may end a process that aborts.
        ends = (None, -SIGABRT, -SIGSEGV, 1) if gave_up else (None, -SIGABRT, 1)
        if (gave_up or self.of("watchdog")) and (status in ends or self.stopped):
            return classes.PEER
        # A crash folder is kept of every death by a signal, also of the launcher's.
        if spoken is not None and spoken.kind == "fatal" and self.stopped and spoken.number in (SIGTERM, SIGKILL):
            return classes.STOPPED
        if spoken is not None and spoken.kind == "fatal":
            return classes.PEER if spoken.number == SIGABRT and of_thread(spoken.thread) else classes.OWN
        if spoken is not None:
            if self._lived_on:
                return classes.STOPPED if self.stopped else "silent"
            told = classes.of_exception(spoken.text)
            # After a traceback, a status of 0 means that it was caught.
            return "ended" if status == 0 else told
        if self.of("killed"):
            return classes.OWN
        if status is not None and -status in _FAULTS:
            return classes.PEER if self.of("progress") and -status == SIGABRT else classes.OWN
        if self.stopped:
            return classes.STOPPED
        if status is None:
            return "silent"
        return "ended" if status == 0 else "weak"

    def what(self) -> Optional[str]:
        status, spoken = self.exit, self.last_words
        if self.of("killed"):
            return "SIGKILL: the kernel was out of memory"
        if spoken is not None and spoken.kind == "exception" and not self._lived_on:
            return spoken.text
        if spoken is not None and spoken.number:
            return f"{signal_name(spoken.number)}: {spoken.text}" if spoken.text else signal_name(spoken.number)
        if status is not None and status < 0:
            return signal_name(-status)
        return f"exit status {status}" if status else None


class _Judged(NamedTuple):
    processes: list[JobProcess]
    cause: Optional[JobCause]
    also: list[JobCause]
    collectives: list[JobCollective]
    person: Optional[_Person]


class _Round:
    """One attempt of the job."""

    def __init__(self, number: int, words: Sequence[Word]) -> None:
        self.number = number
        self.people: dict[Key, _Person] = {}
        self._ranks_by_pid = {word.who.pid: word.who.rank for word in words if word.who.pid is not None and word.who.rank is not None}
        self._ranks_by_local = {
            (word.who.host, word.who.local_rank): word.who.rank
            for word in words
            if word.who.local_rank is not None and word.who.rank is not None
        }
        hosts = {host for host, _ in self._ranks_by_local}
        self._one_host = len(hosts) < 2
        lost: list[Word] = []
        for word in sorted(words, key=_only_adds):
            if _only_adds(word) and not self._is_there(word.who):
                continue
            if word.who.is_known:
                self._person(word.who).hear(word)
            elif not _is_launchers(word):
                lost.append(word)
        self._pair_up()
        self._attribute([word for word in lost if word.kind == "fatal"])
        self._attribute([word for word in lost if word.kind == "exception"])
        self._attribute([word for word in lost if word.kind == "stood"])
        self._attribute([word for word in lost if word.kind == "exit"])
        self.recordings: Sequence[Recording] = ()
        self.members: list[int] = []

    @property
    def is_job(self) -> bool:
        """Whether these are several processes, and something names them as a job's.

        A launcher that tells the end of rank 1 has started rank 0, too, though it need not tell of it.
        """
        people = self.people.values()
        if len(people) > 1:
            return any((one.who.rank, one.who.name) != (None, None) for one in people)
        return any(one.who.rank and word.launcher for one in people for word in one.of("exit"))

    def _is_there(self, who: Who) -> bool:
        return who.pid in self._ranks_by_pid or any(person.who.pid == who.pid for person in self.people.values())

    def add(self, recordings: Sequence[Recording], members: Sequence[int]) -> None:
        """Flight recorders, and the ranks that their groups name."""
        self.recordings, self.members = recordings, list(members)
        for rank in {*members, *(recording.rank for recording in recordings)}:
            self._person(Who(rank=rank))

    def _person(self, who: Who) -> _Person:
        rank = who.rank
        if rank is None and who.pid is not None:
            rank = self._ranks_by_pid.get(who.pid)
        if rank is None and who.local_rank is not None:
            known = [found for (host, local), found in self._ranks_by_local.items() if local == who.local_rank and who.host in (None, host)]
            rank = known[0] if len(known) == 1 else who.local_rank if self._one_host and not known else None
        if rank is not None and who.pid is not None:
            self._ranks_by_pid.setdefault(who.pid, rank)
        key: Key
        if rank is not None:
            key = "rank", rank
        elif who.pid is not None:
            key = "pid", who.pid
        else:
            key = "name", (who.name, who.host, who.local_rank)
        return self.people.setdefault(key, _Person(who._replace(rank=rank)))

    def _attribute(self, words: Sequence[Word]) -> None:
        """What was said past the prefixes, as faulthandler does, is of the one process whose end fits and which said nothing else."""
        if not words:
            return
        alike = len({_said(word) for word in words}) == 1
        for word in words:
            fitting = [person for person in self.people.values() if _fits(word, person) and person.may_have_said(word)]
            # A launcher may tell the end of nobody: then it was the one that said nothing else.
            silent = [person for person in self.people.values() if not person.of("exit", "stopped") and person.last_words is None]
            if not fitting and (word.kind == "fatal" or (word.kind == "exit" and (word.number or 0) < 0)) and len(silent) == 1:
                fitting = silent
            if len(fitting) == 1 or (alike and fitting):
                fitting[0].hear(word)
            elif not fitting and word.kind == "fatal" and self._shows_ranks_only:
                self._person(Who(name="a process without a rank")).hear(word)

    def _pair_up(self) -> None:
        """A rank without a pid and a pid without a rank, where there is one of each, are one process."""
        nameless = [(key, person) for key, person in self.people.items() if key[0] == "pid"]
        ranks = [person for key, person in self.people.items() if key[0] == "rank" and person.who.pid is None]
        if len(nameless) == 1 and len(ranks) == 1:
            key, other = nameless[0]
            del self.people[key]
            for word in other.words:
                ranks[0].hear(word)

    @property
    def _shows_ranks_only(self) -> bool:
        """Whether ranks spoke, and no launcher said how they ended: the log ends before."""
        people = self.people.values()
        return any(person.who.rank is not None for person in people) and not any(person.of("exit") for person in people)

    def _ended_before(self) -> list[int]:
        """Ranks of which nothing tells, where all others lost a peer and the launcher tells of one process less for each of them: it speaks
        of all that it stops and that fail."""
        # One that was on its way out when another one failed may have been looked at.
        people = [person for person in self.people.values() if any(word.kind not in ("alive", "stood") for word in person.words)]
        known = {person.who.rank for person in people if person.who.rank is not None}
        ranked = {person.who.rank for person in self.people.values() if person.who.rank is not None}
        absent = [rank for rank in range(max(ranked, default=-1) + 1) if rank not in known]
        processes = sum(person.who.pid is not None for person in people)
        told = [word for person in people for word in person.of("exit") if word.launcher]
        lost = [person.last_words for person in people if person.failure == classes.PEER]
        if not absent or not told or not lost or processes != len(known) or len(absent) > MOST_ALSO:
            return []
        if any(word is None or classes.waited_in_vain(word.text) for word in lost):
            return []
        return absent if all(person.failure in (classes.PEER, classes.STOPPED) for person in people) else []

    def _never_told_of(self) -> list[int]:
        """Ranks of which nothing tells, not even their end, where all others waited in vain for a peer. SLURM stops a task without a trace.

        They have to be few: who has the evidence of one host alone knows nothing of the others.
        """
        people = [person for person in self.people.values() if person.who.rank is not None]
        world = max((person.who.world or 0 for person in people), default=0)
        known = {person.who.rank for person in people}
        if world > MOST_WORLD or self.recordings:
            return []
        absent = [rank for rank in range(world) if rank not in known]
        if not absent or len(absent) > MOST_ALSO or 2 * len(absent) > len(known):
            return []
        return absent if all(map(_waited_in_vain, people)) else []

    def judge(self) -> _Judged:
        for rank in self._never_told_of():
            self._person(Who(rank=rank))
        before = self._ended_before()
        for rank in before:
            self._person(Who(rank=rank))
        ordered = sorted(self.people.values(), key=lambda person: (person.who.rank is None, person.who.rank or 0, person.who.name or ""))
        failures = {id(person): person.failure for person in ordered}
        wrong = self._collectives(ordered, failures)
        own = [person for person in ordered if failures[id(person)] == classes.OWN]
        weak = [person for person in ordered if failures[id(person)] == "weak"]
        late = set(wrong[0].missing) if wrong else set[int]()
        cause: Optional[JobCause] = None
        person: Optional[_Person] = None
        also: list[_Person] = []
        seen_first = next((one for one in weak if any(word.launcher in SERVICES for word in one.of("first"))), None)
        if ordered and all(map(_is_listed, ordered)):
            failed = [one for one in ordered if failures[id(one)] in (classes.OWN, "weak") and -(one.exit or 0) not in REQUESTS]
            cause = _of_list(failed, self.number) if failed else None
        elif seen_first is not None:
            person, also = seen_first, own
            cause = _cause(person, "likely", self.number, "the first service that ended with an error")
        elif own:
            person, also = _first(own)
            cause = _cause(person, "certain" if not also else "likely", self.number, _because(person, own, ordered))
        elif wrong and wrong[0].problem != "unfinished":
            cause = self._of_collective(wrong[0], ordered, wrong[1:])
            person = next((one for one in ordered if one.who.rank == cause.rank and cause.rank is not None), None)
        elif weak:
            # A signal from outside ends several at once; the launcher names the one that it saw first.
            person, also = _first([one for one in weak if one.exit != -SIGTERM] or weak)
            confidence = "certain" if len(weak) == 1 and person.exit not in (-SIGKILL, -SIGTERM) else "likely"
            cause = _cause(person, confidence, self.number, "it ended by itself without a message; the others were stopped")
        else:
            peers = [one for one in ordered if failures[id(one)] == classes.PEER]
            dumped = {recording.rank for recording in self.recordings}
            gone = [one for one in ordered if dumped and one.who.rank not in dumped and failures[id(one)] == "silent"]
            if before:
                person = next(one for one in ordered if one.who.rank == before[0]) if len(before) == 1 else None
                cause = JobCause(
                    rank=person.who.rank if person is not None else None,
                    ranks=tuple(before) if len(before) > 1 else (),
                    pid=person.who.pid if person is not None else None,
                    attempt=self.number,
                    what=f"{ranks(before)} ended before the others, without an error",
                    confidence="likely",
                    because="the others lost a peer, and the launcher neither saw it fail nor stopped it",
                )
            elif gone:
                person = gone[0] if len(gone) == 1 else None
                several = tuple(one.who.rank for one in gone if one.who.rank is not None)
                cause = JobCause(
                    rank=person.who.rank if person is not None else None,
                    ranks=several if len(several) > 1 else (),
                    attempt=self.number,
                    what=f"{ranks(several)} left no flight recorder dump, and may have died before the others",
                    confidence="possible",
                )
            elif wrong:
                cause = self._of_collective(wrong[0], ordered)
                person = next((one for one in ordered if one.who.rank == cause.rank and cause.rank is not None), None)
            elif peers:
                person, _ = _first(peers)
                cause = _cause(
                    person, "possible", self.number, "it noticed first that a peer was gone or late; the evidence does not say which"
                )
        times = self._times(ordered)
        processes = [
            self._process(one, failures[id(one)], one is person or (not own and one.who.rank in late and cause is not None))
            for one in ordered
        ]
        processes = [replace(process, at=times.get(id(one))) for process, one in zip(processes, ordered, strict=True)]
        further = [_cause(one, "likely", self.number, None) for one in also]
        return _Judged(processes, cause, further, wrong, person)

    def _process(self, person: _Person, failure: str, is_root: bool) -> JobProcess:
        role = {classes.OWN: "failed", "weak": "failed", classes.PEER: "lost-peer", classes.STOPPED: "stopped", "ended": "ended"}
        status = person.exit
        spoken = person.last_words
        asked = -(status or 0) in REQUESTS if _is_listed(person) else status in (-SIGTERM, -SIGKILL)
        if asked and failure == "weak" and not is_root:
            failure = classes.STOPPED
        return JobProcess(
            rank=person.who.rank,
            name=person.who.name,
            pid=person.who.pid,
            host=person.who.host,
            attempt=self.number,
            exit=status,
            signal=signal_name(-status) if status is not None and status < 0 else None,
            role="root-cause" if is_root else role.get(failure, "waited"),
            what=person.what(),
            # Who did not come and waited at its end had come by then: that is not where it was late.
            where=None if is_root and failure not in (classes.OWN, "weak") and waits(person.thread) else person.where,
            time=next((word.time for word in person.of("exit") if word.time), None),
            sequence=self._reached(person),
            source=spoken.path if spoken is not None else next((word.path for word in person.words), None),
        )

    def _times(self, ordered: Sequence[_Person]) -> dict[int, float]:
        """When each ended, by the best source that knows it of two of them; of flight recorders, when it began its last collective."""
        if len({person.who.host for person in ordered if person.who.host is not None}) > 1:
            return {}
        begun = {recording.rank: recording.entries[-1].created for recording in self.recordings if recording.entries}
        seen = {id(one): word.at for one in ordered for word in one.of("fatal", "exit") if word.at is not None}
        recorded = {id(one): time / 1e9 for one in ordered if (time := begun.get(one.who.rank if one.who.rank is not None else -1))}
        told = {id(one): at for one in ordered for word in one.of("exit") if (at := _seconds(word.time)) is not None}
        return next((source for source in (seen, recorded, told) if len(source) > 1), {})

    def _reached(self, person: _Person) -> Optional[int]:
        numbers = [word.number for word in person.of("progress", "watchdog", "differs") if word.number is not None]
        for recording in self.recordings:
            if recording.rank == person.who.rank:
                everyone = [entry.sequence for entry in recording.entries if not entry.is_p2p and self._is_main(recording, entry.group)]
                numbers += everyone[-1:]
        return max(numbers, default=None)

    def _is_main(self, recording: Recording, group: str) -> bool:
        return len(recording.members(group)) in (0, len(self.members))

    def _collectives(self, ordered: Sequence[_Person], failures: Mapping[int, str]) -> list[JobCollective]:
        ranked = {person.who.rank: person for person in ordered if person.who.rank is not None}
        found = collectives.of_recordings(self.recordings)
        if not found or all(one.problem == "unfinished" for one in found):
            told = {rank: progress for rank, person in ranked.items() if (progress := _progress(person)) is not None}
            # The other ranks of a log with watchdogs in it said nothing of collectives.
            watched = collectives.of_watchdogs(told, ranked)
            found = [*([watched] if watched is not None else []), *found]
        if not found:
            differing = [word for person in ordered for word in person.of("differs")]
            found = _as_others_say(differing, ranked)
        if not found:
            absent = sorted({person.who.rank for person in ordered if person.of("absent") and person.who.rank is not None})
            waiting = [person for rank, person in ranked.items() if rank not in absent]
            if absent:
                seen = [_stand(person) for person in waiting]
                one = collectives.collective(seen, ranked, ranked)
                found = [one] if one is not None else []
        if not found and not any(failure in (classes.OWN, "weak") for failure in failures.values()):
            waiting = [person for person in ranked.values() if failures[id(person)] == classes.PEER and person.last_words is not None]
            silent = [rank for rank, person in ranked.items() if failures[id(person)] in (classes.STOPPED, "silent", "ended")]
            stands = [_stand(person) for person in waiting if stood_in(person.thread)]
            # A connection that was lost, or an abort, says nothing of who did not come.
            late = any(classes.waited_in_vain(person.last_words.text) for person in waiting if person.last_words is not None)
            one = collectives.of_stands(stands, silent if late else ())
            found = [one] if one is not None else []
        return [_with_places(one, ranked) for one in found]

    def _of_collective(self, wrong: JobCollective, ordered: Sequence[_Person], others: Sequence[JobCollective] = ()) -> JobCause:
        concerned = wrong.missing if wrong.problem == "missing" else wrong.differing
        if wrong.problem == "mismatch" and len(wrong.calls) > 1 and len(wrong.calls[0].ranks) == len(wrong.calls[1].ranks):
            # As many called the one as the other: nobody can say who is right.
            concerned = tuple(sorted(rank for call in wrong.calls for rank in call.ranks))
        one = next((person for person in ordered if len(concerned) == 1 and person.who.rank == concerned[0]), None)
        # Ranks of several groups wait at several lines.
        came = {rank for call in wrong.calls for rank in call.ranks}
        mutual = any(came & set(one.missing) and {rank for call in one.calls for rank in call.ranks} & set(wrong.missing) for one in others)
        unsure = (
            wrong.problem == "unfinished" or wrong.differs == ("place",) or any(call.operation == "send or recv" for call in wrong.calls)
        )
        # A receive has no number among the collectives: what its peer did not send may have been left out, or the other call.
        apart = wrong.problem == "mismatch" and any(call.operation in POINT_TO_POINT for call in wrong.calls)
        confidence = "possible" if unsure else "certain" if wrong.sequence is not None and not mutual and not apart else "likely"
        because = {
            "missing": "the others waited for it" if len(concerned) == 1 else "the others waited for them",
            "mismatch": "the calls of the ranks differ",
        }.get(wrong.problem or "")
        return JobCause(
            rank=concerned[0] if len(concerned) == 1 else None,
            ranks=tuple(concerned) if len(concerned) > 1 else (),
            pid=one.who.pid if one is not None else None,
            attempt=self.number,
            what=what_happened(wrong, [self._process(person, "", True) for person in ordered if person.who.rank in wrong.missing]),
            where=_place_of_cause(wrong, one),
            confidence=confidence,
            because=because,
        )


def _seconds(text: Optional[str]) -> Optional[float]:
    """What torchrun's summary says: `2026-11-22_01:04:20`, in its host's time. Only compared with the others', so any zone will do."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() if text and "_" in text else None
    except ValueError:
        return None


def _place_of_cause(wrong: JobCollective, person: Optional[_Person]) -> Optional[JobPlace]:
    if wrong.problem == "missing":
        return person.where if person is not None and not waits(person.thread) else None
    call = next((call for call in wrong.calls if person is not None and person.who.rank in call.ranks), None)
    return call.where if call is not None else None


def _first(several: Sequence[_Person]) -> tuple[_Person, list[_Person]]:
    """The one that the launcher saw first; else the one that it did not stop and that spoke first in a log of all."""

    def rank(person: _Person) -> tuple[bool, bool, int]:
        return not person.of("first"), person.stopped, min((word.line for word in person.words if word.line), default=0)

    ordered = sorted(several, key=rank)
    return ordered[0], ordered[1:]


def _because(person: _Person, own: Sequence[_Person], everyone: Sequence[_Person]) -> str:
    followed = [one for one in everyone if one not in own]
    if len(own) > 1:
        others = len(own) - 1
        known = "the launcher saw it fail first" if person.of("first") else "its message came first"
        return f"{known}; {others} more failed for reasons of their own"
    stopped = sum(one.stopped for one in followed)
    return "it is the only one that failed by itself" + (f"; the launcher stopped {stopped} more" if stopped else "")


def _cause(person: _Person, confidence: str, attempt: int, because: Optional[str]) -> JobCause:
    return JobCause(
        rank=person.who.rank,
        name=person.who.name,
        pid=person.who.pid,
        attempt=attempt,
        what=person.what(),
        where=person.where,
        confidence=confidence,
        because=because,
    )


def _of_list(failed: Sequence[_Person], attempt: int) -> JobCause:
    sure = "likely" if any(word.unsure for one in failed for word in one.of("exit")) else "certain"
    if len(failed) == 1:
        because = "no other process of the list was ended by a signal that nobody asked for"
        return _cause(failed[0], sure, attempt, because)
    several = f"{len(failed)} processes"
    told = [f"{one.who.name} ({one.what()})" for one in failed[:_MOST_LISTED]]
    more = f", and {len(failed) - _MOST_LISTED} more" if len(failed) > _MOST_LISTED else ""
    return JobCause(
        name=several,
        attempt=attempt,
        what=f"{several} failed: {', '.join(told)}{more}",
        confidence=sure,
        because="the list tells how each ended, but not which was the first, nor whether they belong together",
    )


def _is_listed(person: _Person) -> bool:
    """Whether only a list of processes tells of it, whose order says nothing of who failed first."""
    return bool(person.words) and all(word.launcher in LISTINGS for word in person.words)


def _waited_in_vain(person: _Person) -> bool:
    spoken = person.last_words
    return person.failure == classes.PEER and spoken is not None and classes.waited_in_vain(spoken.text)


def _only_adds(word: Word) -> bool:
    """Whether a process that nothing else tells of is none of the job."""
    who = word.who
    return word.kind in _ADDED and who.pid is not None and (who.rank, who.local_rank, who.name) == (None, None, None)


def _is_launchers(word: Word) -> bool:
    """A launcher's own traceback."""
    frames = python_frames(word.thread) if word.thread is not None else []
    return word.kind == "exception" and any(classes.is_launchers(frame.file or "") for frame in frames)


def _said(word: Word) -> tuple[object, ...]:
    where = place_of(word.thread) or place_of(word.main)
    return word.kind, classes.of_exception(word.text), where.file if where else None, where.line if where else None


def _fits(word: Word, person: _Person) -> bool:
    status = person.exit
    if word.kind == "stood":
        return person.stopped
    if word.kind == "exit":
        return word.number is not None and any(told.number == -word.number for told in person.of("fatal"))
    if word.kind == "fatal":
        return status is not None and word.number is not None and status == -word.number
    return status is not None and status > 0


def _progress(person: _Person) -> Optional[Progress]:
    # What it enqueued later came too late.
    first = next(iter(person.of("progress")), None)
    watchdog = next(iter(person.of("watchdog")), None)
    if first is None and watchdog is None:
        return None
    seen = None
    if watchdog is not None:
        seen = Seen(person.who.rank or 0, collectives.named(watchdog.operation), watchdog.sizes)
    return Progress(
        first.number if first is not None else None,
        first.completed if first is not None else None,
        watchdog.number if watchdog is not None else None,
        seen,
        first.group if first is not None else None,
        _elsewhere(person),
        max((word.number for word in person.of("progress") if word.number is not None), default=None),
    )


def _elsewhere(person: _Person) -> Optional[Seen]:
    """A send or receive in which the rank may have waited instead. An unbatched one waits for its peer before it is enqueued."""
    inside = of_thread(person.thread)
    if inside in POINT_TO_POINT:
        return Seen(person.who.rank or 0, inside, where=person.where)
    return Seen(person.who.rank or 0, "send or recv") if person.of("pair") and person.thread is None else None


def _as_others_say(words: Sequence[Word], ranked: Mapping[int, _Person]) -> list[JobCollective]:
    """What TORCH_DISTRIBUTED_DEBUG=DETAIL found: every rank says what it and another one called."""
    said = {word.who.rank: word for word in words if word.who.rank is not None}
    seen = [
        Seen(rank, operation(word.operation or ""), word.sizes, where=ranked[rank].where) for rank, word in said.items() if rank in ranked
    ]
    if len(seen) < 2:
        return []
    one = collectives.collective(seen, said, said, None, next(iter(said.values())).number)
    return [one] if one is not None else []


def _stand(person: _Person) -> Seen:
    return Seen(person.who.rank or 0, stood_in(person.thread), where=person.where)


def _with_places(one: JobCollective, ranked: Mapping[int, _Person]) -> JobCollective:
    """Calls without a line get that of the rank's own words."""
    calls = []
    for call in one.calls:
        where = call.where
        if where is None:
            several = (ranked[rank] for rank in call.ranks if rank in ranked)
            where = next((place for person in several if (place := _called(person, call.operation)) is not None), None)
        calls.append(replace(call, where=where))
    by_rank = {
        rank: replace(call, where=call.where or next((c.where for c in calls if int(rank) in c.ranks), None))
        for rank, call in one.ranks.items()
    }
    return replace(one, calls=tuple(calls), ranks=by_rank)


def _called(person: _Person, name: Optional[str]) -> Optional[JobPlace]:
    """Where this process called the collective of that name: as the watchdog says, else by its stack."""
    told = first_own(word.where for word in person.of("call") if word.where is not None)
    return told or (person.where if has_called(person.thread, name) else None)
