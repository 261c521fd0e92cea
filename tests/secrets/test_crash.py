"""The finished crash: no string of it is left out."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from crashkit import model
from crashkit.model import (
    Crash,
    Evidence,
    Finding,
    Gpu,
    GpuException,
    GpuLane,
    LaunchedFrom,
    LogLine,
    NativeFrame,
    Process,
    PythonFrame,
    Sibling,
    SoftError,
    Thread,
)
from crashkit.report.json import encode
from crashkit.report.renderer import RENDERERS, renderer
from crashkit.secrets.crash import REPRS, TEXTS, masked, strings, without_locals
from crashkit.secrets.text import MASK
from tests.report import samples
from tests.report.schema_doc import structs

SECRET = "ghp_Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56Qr78"
KEPT = {"Crash.schema"}
"""Never masked: readers look at it first."""


def planted(hint: Any, place: str, places: list[str]) -> Any:
    """A value of this type, with the secret in every string of it. `places` gets each field that holds one."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint)
        return hint(**{name: planted(hints[name], f"{hint.__name__}.{name}", places) for name in hint.__struct_fields__})
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is str:
        places.append(place)
        return place if place in KEPT else f"x {SECRET} y"
    if origin in (typing.Union, types.UnionType):
        made = [planted(part, place, places) for part in parts if part is not type(None)]
        return made[0]
    if origin is tuple:
        # Each kind of frame once.
        kinds = typing.get_args(parts[0]) if typing.get_origin(parts[0]) in (typing.Union, types.UnionType) else (parts[0],)
        return tuple(planted(kind, place, places) for kind in kinds)
    if origin is dict:
        return {planted(parts[0], place, places): planted(parts[1], place, places)}
    return hint(1)


def test_every_string_of_the_model_is_masked() -> None:
    places: list[str] = []
    crash = planted(Crash, "Crash", places)
    fields = {
        f"{struct.__name__}.{name}" for struct in structs() for name, hint in typing.get_type_hints(struct).items() if holds_text(hint)
    }
    assert set(places) == fields | KEPT, "the test plants a secret in every field that holds text"
    document = encode(masked(crash)).decode()
    assert SECRET not in document
    assert [text for text in strings(masked(crash)) if MASK not in text] == ["Crash.schema"]
    assert document.count(MASK) == masked(crash).masked == len(places) - len(KEPT)


def holds_text(hint: Any) -> bool:
    return hint is str or any(holds_text(part) for part in typing.get_args(hint))


def test_what_is_treated_by_name_exists() -> None:
    """And no dictionary of the model is forgotten: its values have names."""
    dictionaries = {
        (struct, name)
        for struct in structs()
        for name, hint in typing.get_type_hints(struct).items()
        if typing.get_origin(hint) is dict and typing.get_args(hint)[1] is str
    }
    assert dictionaries == REPRS | TEXTS


@pytest.mark.parametrize(("struct", "field"), sorted(REPRS | TEXTS, key=str), ids=str)
def test_the_name_of_a_value_makes_it_secret(struct: type[Any], field: str) -> None:
    names = {"password": "'hunter2'", "n": "3"} if (struct, field) in REPRS else {"password": "hunter2", "n": "3"}
    fact = {
        PythonFrame: lambda: Crash(threads=(Thread(frames=(PythonFrame(**{field: names}),)),)),
        NativeFrame: lambda: Crash(threads=(Thread(frames=(NativeFrame(**{field: names}),)),)),
        Process: lambda: Crash(process=Process(**{field: names})),
        LogLine: lambda: Crash(log=(LogLine(text="x", **{field: names}),)),
        GpuLane: lambda: Crash(gpu=(Gpu(exceptions=(GpuException(name="x", warp=(GpuLane(**{field: names}),)),)),)),
        GpuException: lambda: Crash(gpu=(Gpu(exceptions=(GpuException(name="x", **{field: names}),)),)),
    }[struct]()
    assert "hunter2" not in encode(masked(fact)).decode() and masked(fact).masked == 1


def test_source_lines_that_stand_alone_are_source() -> None:
    """A literal is secret, a name is not."""
    for line, expected in (("password = 'hunter2xyz'", f"password = '{MASK}'"), ("token = tokens[i];", "token = tokens[i];")):
        gpu = Gpu(exceptions=(GpuException(name="x", source=line),), launched_from=LaunchedFrom(thread=1, source=line))
        (clean,) = masked(Crash(gpu=(gpu,))).gpu
        assert (clean.exceptions[0].source, clean.launched_from.source if clean.launched_from else None) == (expected, expected)


def test_source_lines_of_a_kernel_are_masked_together() -> None:
    """A literal may go over several lines, as around a Python frame."""
    lines = ("login(", '    password="""', "Zk3hunter2", '""")')
    exception = GpuException(name="x", context=lines, context_start=1)
    (clean,) = masked(Crash(gpu=(Gpu(exceptions=(exception,)),))).gpu
    assert "hunter2" not in encode(Crash(gpu=(clean,))).decode()


def crash() -> Crash:
    source = ("login(", '    user="me",', '    password="""', "Zk3hunter2", '""")')
    frame = PythonFrame(
        function="login",
        file="/srv/app.py",
        line=4,
        source="Zk3hunter2",
        context=source,
        context_start=1,
        locals={"token": "'Ab12Cd34Ef56'", "copy": "'Ab12Cd34Ef56'", "token_ids": "[1, 2]"},
        args=("token",),
    )
    native = NativeFrame(function="check", args={"password": '0x7f00 "Xy98hunter"', "n": "3"})
    return Crash(
        id="1",
        process=Process(argv=("python", "app.py", "Ab12Cd34Ef56"), environment={"PWD": "/srv"}),
        threads=(Thread(tid=1, crashed=True, frames=(native, frame)),),
        log=(LogLine(text="ValueError: Ab12Cd34Ef56 is no good"), LogLine(text="password=hunter2")),
        findings=(
            Finding(
                id="x",
                title="y",
                confidence="likely",
                summary="Xy98hunter",
                fix=("login('Ab12Cd34Ef56')",),
                evidence=(Evidence(text="password=hunter2"),),
            ),
        ),
        soft_errors=(SoftError(stage="x", message="no file Ab12Cd34Ef56"),),
    )


def test_a_secret_that_one_field_names_goes_from_all() -> None:
    clean = masked(crash())
    assert not {secret for secret in ("Ab12Cd34Ef56", "Xy98hunter", "Zk3hunter2", "hunter2") for text in strings(clean) if secret in text}
    assert clean.process is not None and clean.process.argv == ("python", "app.py", MASK)
    assert clean.log[0].text == f"ValueError: {MASK} is no good"


def test_source_over_several_lines_keeps_its_lines() -> None:
    (frame,) = masked(crash()).threads[0].pythons()
    assert frame.context == ("login(", '    user="me",', f'    password="""{MASK}', "", '""")')
    assert frame.source == ""


def test_secrets_known_before_go() -> None:
    assert masked(Crash(log=(LogLine(text="x Qq11Ww22 y"),)), known=["Qq11Ww22"]).log[0].text == f"x {MASK} y"


def test_masking_twice_is_masking_once() -> None:
    assert masked(masked(crash())) == masked(crash())


@pytest.mark.parametrize("name", samples.ALL)
def test_a_crash_without_secrets_stays(name: str) -> None:
    sample = samples.ALL[name]()
    assert masked(sample) == sample


@pytest.mark.parametrize("name", RENDERERS)
def test_each_format_says_how_many_are_masked(name: str) -> None:
    clean = masked(crash())
    shown = renderer(name).render(clean).decode()
    said = f'"masked": {clean.masked}' if name == "json" else f"{clean.masked} likely secrets"
    assert said in " ".join(shown.split())
    assert "likely secret" not in renderer(name).render(crash()).decode()


def frames(value: Any) -> Iterator[NativeFrame | PythonFrame]:
    """All of a fact, wherever they stand."""
    if isinstance(value, (NativeFrame, PythonFrame)):
        yield value
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    for item in value if isinstance(value, (list, tuple)) else ():
        yield from frames(item)


def test_without_locals_no_frame_of_a_thread_a_task_or_a_gpu_has_values() -> None:
    whole = planted(Crash, "Crash", [])
    bare = without_locals(whole)
    assert len([frame for frame in frames(whole) if frame.locals and frame.args]) > 10
    assert [frame for frame in frames(bare) if frame.locals or frame.args] == []
    encode(bare)
    for one, other in zip(frames(whole), frames(bare), strict=True):
        assert msgspec.structs.replace(one, locals={}, args=type(one.args)()) == other
    assert set(strings(whole)) == set(strings(bare)), "each has one of the same in another field"


def test_a_command_line_is_masked_as_one() -> None:
    argv = ("python", "--db-pass", "hush", "-u", "me:hush", "hush")
    crash = Crash(process=Process(argv=argv), siblings=(Sibling(argv=argv),))
    assert [one.argv for one in (masked(crash).process, *masked(crash).siblings) if one] == [
        ("python", "--db-pass", MASK, "-u", f"me:{MASK}", "hush")
    ] * 2


def test_the_schema_stays_whatever_is_secret() -> None:
    assert masked(Crash(id="a"), known=[model.SCHEMA]).schema == model.SCHEMA


def test_context_is_source_also_where_its_lines_have_line_breaks() -> None:
    for lines in (("password = wanted", "token = 'Zk3hunter2'"), ("password = wanted", "x\ny", "token = 'Zk3hunter2'")):
        (frame,) = masked(of_frame(context=lines, context_start=1)).threads[0].pythons()
        assert frame.context == (*lines[:-1], f"token = '{MASK}'")


def of_frame(**fields: Any) -> Crash:
    return Crash(threads=(Thread(frames=(PythonFrame(**fields),)),))


@pytest.mark.parametrize(("line", "start"), [(1, 1), (3, 1), (0, 0), (None, None), (4, 1), (9, 1), (1, 3)])
def test_the_line_of_a_frame_is_masked_wherever_its_context_begins(line: int | None, start: int | None) -> None:
    source = "password = 'Zk3hunter2'"
    (frame,) = masked(of_frame(line=line, source=source, context=(source, "x", source), context_start=start)).threads[0].pythons()
    assert frame.source == f"password = '{MASK}'"


@pytest.mark.parametrize(("line", "expected"), [(7, 'password = """<masked>'), (8, ""), (9, "")])
def test_the_line_of_a_frame_is_as_in_its_context(line: int, expected: str) -> None:
    """What stands before it tells that it is a secret."""
    context = ('password = """Zk3', "  hunter 1", "hunter 2", '""")')
    (frame,) = masked(of_frame(line=line, source=context[line - 7].strip(), context=context, context_start=7)).threads[0].pythons()
    assert frame.source == expected


def test_columns_count_the_characters_of_the_line_as_it_was() -> None:
    for source, columns in (("f('a', password='hunter2')", None), ("f('a', password=x)", (0, 1))):
        (frame,) = masked(of_frame(source=source, columns=(0, 1))).threads[0].pythons()
        assert frame.columns == columns
