"""Which debugger reads what: the best one everything, the next ones whatever is still missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from typing import Optional

from crashkit.attempt import failed
from crashkit.debugger.contract import Answer, Debugger, IsWanted, Lap, always, never
from crashkit.evidence.core.describe import Scene
from crashkit.model import SoftError


def start(debuggers: Sequence[Debugger], stack: ExitStack) -> tuple[list[Debugger], list[SoftError]]:
    """The debuggers that can be used, and why the others cannot. All are closed with the stack."""
    ready, soft_errors = [], []
    for debugger in debuggers:
        stack.callback(debugger.close)
        error = _start(debugger)
        if error is None:
            ready.append(debugger)
        else:
            soft_errors.append(error)
    return ready, soft_errors


def ask(
    debuggers: Sequence[Debugger], core: Path, scene: Scene, pool: Executor, lap: Lap, python_is_known: Callable[[], bool] = lambda: False
) -> list[Answer]:
    """The answers of started debuggers, best first; those with nothing to add are skipped.

    If the best one cannot read this core's Python frames, one that can reads them at the same time, in the pool. Where they are known
    already, which may turn out while the best one reads native frames, none is asked for them alone.
    """
    if not debuggers:
        return []
    best, *others = debuggers
    reader = next((debugger for debugger in debuggers if debugger.reads_python(scene)), best)

    def read_early() -> Optional[Answer]:
        return None if python_is_known() else _examine(reader, core, scene, False, _ignore)

    # Whether they are known may take a while to turn out: nothing may wait for that before the best one is asked.
    early = pool.submit(read_early) if reader is not best else None
    answers = [_examine(best, core, scene, True, lap, lambda: not python_is_known())]
    for debugger in others:
        no_native = all(answer.native is None for answer in answers)
        if early is not None and debugger is reader and not no_native:
            read = early.result()
            if read is not None:
                answers.append(read)
                lap(debugger.name)
            continue
        is_known = python_is_known() or any(map(_tells_all_of_python, answers))
        if no_native or not is_known:
            answers.append(_examine(debugger, core, scene, no_native, lap, never if is_known else always))
    return answers


def _start(debugger: Debugger) -> Optional[SoftError]:
    try:
        return debugger.start()
    except Exception as error:
        return failed(debugger.name, debugger.name, error)


def _examine(debugger: Debugger, core: Path, scene: Scene, native: bool, lap: Lap, python: IsWanted = always) -> Answer:
    """What the debugger answers; a soft error if what it printed breaks its reader."""
    try:
        return debugger.examine(core, scene, native, lap, python)
    except Exception as error:
        return Answer(soft_errors=(failed(debugger.name, f"the reader of {debugger.name}'s answers", error),))


def _tells_all_of_python(answer: Answer) -> bool:
    return answer.python is not None and answer.python_is_whole and not any(stack.has_gaps for stack in answer.python.values())


def _ignore(_part: str) -> None:
    """Parts that run beside others take none of the time that passes."""
