"""Which fixes of a signature are for this run: not what it did already, and not what it has no use for. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Optional

from crashkit.diagnose.case import Case
from crashkit.diagnose.conditions import answer
from crashkit.diagnose.facts import FACTS
from crashkit.diagnose.signature import Condition, Fix
from crashkit.diagnose.texts import fill
from crashkit.naming.installation import as_it_is, for_conda, is_packaged

# `NAME=value NAME=value COMMAND`, `export NAME=value`, `unset NAME`.
_ASSIGNED = re.compile(r"\s*(?:export +)?((?:[A-Z_][A-Z0-9_]*=[^\s'\"$(]+(?:\s+|$))+)")
_LINUX_ONLY = re.compile(
    r"^(?:crashkit (?:run|attach)\b|(?:\w+=\S+ )*LD_\w+=|valgrind |strace |coredumpctl |sacct |ldd |sudo apt|ulimit -c|gdb )"
    r"|/proc/|/dev/shm|/sys/|\bdmesg\b|\bcgroup",
    re.MULTILINE,
)
"""Programs and files that the other systems do not have; crashkit reads their texts, and runs on Linux."""
_POSIX_ONLY = re.compile(r"^\w+='", re.MULTILINE)
"""A value in the quotes of a POSIX shell."""
_UNSET = re.compile(r"\s*unset ([A-Z_][A-Z0-9_]*)")
_OF_EVIDENCE = frozenset({"executable", "extension", "file", "library", "mapped_file", "package", "stored_core"})
"""What a text or a core names, and commands have as a word: nothing in it may be one of the shell's marks. Others are quoted already."""
# A space that is left where a command is not known, before its comment or at the end of its line.
_SPARE = re.compile(r" (?=   #|$)", re.MULTILINE)


def fitting(fixes: Sequence[Fix], case: Case, known: dict[str, str]) -> tuple[str, ...]:
    """The filled texts of those that are for this run. One that only lacks its package is kept if nothing else is left."""
    known = {name: shlex.quote(value) if name in _OF_EVIDENCE else value for name, value in known.items()}
    filled = [(fix, text) for fix in fixes if (text := fill(fix.text, known)) is not None and _is_for(fix, text, case)]
    filled = [(fix, _adapted(_SPARE.sub("", text), known, case)) for fix, text in filled]
    return tuple([text for fix, text in filled if not _lacks_package(fix, case)] or [text for _, text in filled])


def _adapted(text: str, known: dict[str, str], case: Case) -> str:
    """In conda's environments pip is one of two that install packages. What came with a package has no source folder here."""
    if case.system == "windows":
        text = _for_windows(text)
    library = known.get("extension_file")
    if library is not None and is_packaged(library, case.environment.get("CONDA_PREFIX")):
        text = as_it_is(text, known["extension"], known.get("command"))
    return for_conda(text) if FACTS["conda"](case).holds else text


def _for_windows(text: str) -> str:
    """As its command line takes it: `set "NAME=value" && COMMAND`, where a remark is a command of its own."""
    assigned, unset = _ASSIGNED.match(text), _UNSET.match(text)
    if unset is not None:
        text = f'set "{unset[1]}="{text[unset.end() :]}'
    elif assigned is not None:
        sets = " && ".join(f'set "{word}"' for word in assigned[1].split())
        command = text[assigned.end() :]
        text = f"{sets} && {command}" if command and not command.startswith("#") else f"{sets}   {command}".rstrip()
    return text.replace("   # ", "   & rem ", 1) if text.startswith("set ") else text


def _lacks_package(fix: Fix, case: Case) -> bool:
    return fix.needs is not None and _contradicted(Condition(package=fix.needs), case)


def _is_for(fix: Fix, text: str, case: Case) -> bool:
    if any(_contradicted(condition, case) for condition in fix.when) or any(answer(condition, case).holds for condition in fix.unless):
        return False
    return not _did_already(text, case) and not _is_of_another_system(text, case.system)


def _is_of_another_system(text: str, system: Optional[str]) -> bool:
    if system == "windows" and _POSIX_ONLY.search(text):
        return True
    return system is not None and _LINUX_ONLY.search(text) is not None


def _contradicted(condition: Condition, case: Case) -> bool:
    outcome = answer(condition, case)
    return not outcome.holds and outcome.missing is None


def _did_already(text: str, case: Case) -> bool:
    """Whether the run had every variable that the text sets, with its value, lacked the one that it removes, ran this very code, or left
    the core that the text would make."""
    if text.startswith("crashkit run -- "):
        return case.crash.source is not None and case.crash.source.kind == "core"
    assigned = _ASSIGNED.match(text)
    if assigned is not None:
        pairs = [word.partition("=")[::2] for word in assigned[1].split()]
        return all(case.environment.get(name) == value for name, value in pairs)
    code = text.partition("   #")[0].strip()
    if "(" in code and any(code in line for line in case.source_lines):
        return True
    unset = _UNSET.match(text)
    return unset is not None and _contradicted(Condition(environment={unset[1]: ""}), case)
