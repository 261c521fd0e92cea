"""The core names the source files: only Python source may get into a report, and only a bounded part of it."""

from __future__ import annotations

import os
import socket
import stat
import zipfile
from pathlib import Path

import pytest

from crashkit.model import PythonFrame
from crashkit.stacks import source
from crashkit.stacks.source import Sources

SECRET = "root:$6$secret:19000:0:99999:7:::"


def annotated(path: Path, line: int = 1, crashed_at: float | None = None) -> tuple[PythonFrame, Sources]:
    sources = Sources(Path, crashed_at)
    return sources.annotate(PythonFrame(function="f", file=str(path), line=line)), sources


def is_not_read(path: Path) -> None:
    frame, _ = annotated(path)
    assert (frame.source, frame.context, frame.context_start) == (None, (), None)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_line_and_those_around_it(tmp_path):
    path = written(tmp_path / "app.py", "".join(f"    line({number})\n" for number in range(1, 21)))
    frame, _ = annotated(path, 10)
    assert frame.source == "line(10)"
    assert (frame.context_start, len(frame.context), frame.context[0]) == (5, 11, "    line(5)")


@pytest.mark.parametrize("name", ["shadow", "id_rsa", "secrets.json", "app.pyc", "app.txt", "py", ".py"])
def test_what_is_no_python_source_is_not_read(tmp_path, name):
    is_not_read(written(tmp_path / name, f"{SECRET}\n"))


@pytest.mark.parametrize("first", ["#!/bin/sh", "# python", "python", " #!/usr/bin/python3"])
def test_what_does_not_begin_as_a_python_script_is_not_read(tmp_path, first):
    is_not_read(written(tmp_path / "tool", f"{first}\n{SECRET}\n"))


@pytest.mark.parametrize(("name", "text"), [("app.py", "run()\n"), ("app.pyw", "run()\n"), ("tool", "#!/usr/bin/env python3\n")])
def test_python_source_is_read(tmp_path, name, text):
    assert annotated(written(tmp_path / name, text))[0].source == text.strip()


def test_a_file_too_large_is_not_read(tmp_path, monkeypatch):
    path = written(tmp_path / "app.py", "x = 1\n" * 100)
    monkeypatch.setattr(source, "_MOST_BYTES", 599)
    is_not_read(path)
    monkeypatch.setattr(source, "_MOST_BYTES", 600)
    assert annotated(path)[0].source == "x = 1"


def test_a_long_line_is_cut(tmp_path):
    frame, _ = annotated(written(tmp_path / "app.py", "x" * 10_000))
    assert frame.source == frame.context[0] == "x" * 500


@pytest.mark.parametrize("content", [b"# coding: no-such\nx\n", b"x = '\xff'\n"])
def test_bytes_that_are_no_text_are_not_read(tmp_path, content):
    path = tmp_path / "app.py"
    path.write_bytes(content)
    is_not_read(path)


def test_what_cannot_be_found_or_opened_is_not_read(tmp_path):
    is_not_read(tmp_path / "gone.py")
    (tmp_path / "folder.py").mkdir()
    is_not_read(tmp_path / "folder.py")
    assert Sources(lambda _name: None, None).annotate(PythonFrame(file="x.py", line=1)).source is None


def test_a_line_behind_the_end_is_not_there(tmp_path):
    assert annotated(written(tmp_path / "app.py", "one\n"), 2)[0].source is None


def test_a_file_changed_after_the_crash_is_named(tmp_path):
    path = written(tmp_path / "app.py", "one\n")
    os.utime(path, (1000, 1000))
    assert annotated(path, crashed_at=999)[1].newer == {str(path)}
    assert annotated(path, crashed_at=1001)[1].newer == set()
    assert annotated(path)[1].newer == set()


def test_a_file_is_read_once(tmp_path):
    path = written(tmp_path / "app.py", "one\n")
    frame, sources = annotated(path)
    path.write_text("two\n")
    assert sources.annotate(frame).source == "one"


class TestLinks:
    """What counts is the file that is read, not the name that the core, or whoever made a link, gave it."""

    @pytest.mark.parametrize("target", ["shadow", "id_rsa", "secrets.json", ".env", "app.py.bak"])
    @pytest.mark.parametrize("links", [1, 3])
    def test_to_what_is_no_python_source(self, tmp_path, target, links):
        written(tmp_path / target, f"{SECRET}\n")
        is_not_read(chained(tmp_path, target, links))

    @pytest.mark.parametrize("links", [1, 3])
    def test_to_python_source(self, tmp_path, links):
        written(tmp_path / "real.py", "run()\n")
        assert annotated(chained(tmp_path, "real.py", links))[0].source == "run()"

    def test_a_folder_that_is_a_link(self, tmp_path):
        (tmp_path / "release-2").mkdir()
        written(tmp_path / "release-2" / "app.py", "run()\n")
        (tmp_path / "current").symlink_to("release-2")
        assert annotated(tmp_path / "current" / "app.py")[0].source == "run()"

    def test_in_a_circle(self, tmp_path):
        (tmp_path / "a.py").symlink_to("b.py")
        (tmp_path / "b.py").symlink_to("a.py")
        is_not_read(tmp_path / "a.py")

    def test_to_nothing(self, tmp_path):
        (tmp_path / "app.py").symlink_to("gone.py")
        is_not_read(tmp_path / "app.py")

    def test_the_real_shadow(self, tmp_path):
        (tmp_path / "app.py").symlink_to("/etc/shadow")
        is_not_read(tmp_path / "app.py")

    def test_exchanged_for_a_link_meanwhile(self, tmp_path, monkeypatch):
        """After its real path was computed."""
        path = written(tmp_path / "app.py", "run()\n")
        written(tmp_path / "shadow", f"{SECRET}\n")
        really_open = os.open

        def exchange(opened, *arguments, **options):
            if opened == path and not path.is_symlink():
                path.unlink()
                path.symlink_to("shadow")
            return really_open(opened, *arguments, **options)

        monkeypatch.setattr(os, "open", exchange)
        is_not_read(path)
        assert path.is_symlink()

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("written_to", [False, True])
    def test_exchanged_for_a_fifo_meanwhile(self, tmp_path, monkeypatch, written_to):
        """One without a writer would block, and what another process writes into one is no file's."""
        path = written(tmp_path / "app.py", "run()\n")
        really_open = os.open
        held = []

        def exchange(opened, *arguments, **options):
            if opened == path and not held:
                path.unlink()
                os.mkfifo(path)
                held.append(really_open(path, os.O_RDWR) if written_to else -1)
                if written_to:
                    os.write(held[0], f"{SECRET}\n".encode())
            return really_open(opened, *arguments, **options)

        monkeypatch.setattr(os, "open", exchange)
        is_not_read(path)
        assert held
        if written_to:
            os.close(held[0])

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_a_second_name_in_somebody_elses_folder(self, tmp_path):
        secret = written(tmp_path / "shadow", f"{SECRET}\n")
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "app.py").hardlink_to(secret)
        assert annotated(tmp_path / "theirs" / "app.py")[0].source == SECRET
        os.chown(tmp_path / "theirs", 65534, 65534)
        is_not_read(tmp_path / "theirs" / "app.py")
        assert annotated(written(tmp_path / "theirs" / "only.py", "run()\n"))[0].source == "run()", "a file's only name"

    def test_a_second_name_of_our_own(self, tmp_path):
        """As uv links packages from its cache."""
        (tmp_path / "app.py").hardlink_to(written(tmp_path / "cached.py", "run()\n"))
        assert annotated(tmp_path / "app.py")[0].source == "run()"


def chained(folder: Path, target: str, links: int) -> Path:
    """A `.py` link to the target, through others."""
    for number in range(links):
        link = folder / f"link{number}.py"
        link.symlink_to(target)
        target = link.name
    return link


class TestNoRegularFile:
    """These would block, never end, or do something when opened."""

    @pytest.fixture(params=["itself", "link"])
    def place(self, request, tmp_path):
        """Where to put it so that it is met, and where the core says that the source is."""
        named = tmp_path / "app.py"
        if request.param == "itself":
            return named, named
        named.symlink_to("behind.py")
        return tmp_path / "behind.py", named

    @pytest.mark.timeout(60)
    def test_a_fifo(self, place):
        os.mkfifo(place[0])
        is_not_read(place[1])

    @pytest.mark.timeout(60)
    def test_a_socket(self, place, monkeypatch):
        monkeypatch.chdir(place[0].parent)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place[0].name)
            is_not_read(place[1])

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("device", ["zero", "tty", "random"])
    def test_a_device(self, place, device):
        place[0].symlink_to(f"/dev/{device}")
        is_not_read(place[1])

    def test_a_device_is_not_even_opened(self, place, monkeypatch):
        """Some do something when they are: a tape rewinds, a watchdog starts."""
        opened = []
        really_open = os.open
        place[0].symlink_to("/dev/zero")
        monkeypatch.setattr(os, "open", lambda path, *rest, **options: opened.append(path) or really_open(path, *rest, **options))
        is_not_read(place[1])
        assert opened == []

    @pytest.mark.timeout(60)
    def test_one_that_is_named_as_source(self, place):
        try:
            os.mknod(place[0], stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("only root can make a device")
        is_not_read(place[1])


def found(path: Path, line: int = 1) -> PythonFrame:
    """As with the files of the crashed system: only what is there is found."""
    sources = Sources(lambda name: Path(name) if Path(name).is_file() else None, None)
    return sources.annotate(PythonFrame(function="f", file=str(path), line=line))


def test_a_name_with_two_dots_is_the_file_s_own_name(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    written(tmp_path / "app.py", "crash()\n")
    frame = found(tmp_path / "bin" / ".." / "app.py")
    assert (frame.file, frame.source) == (str(tmp_path / "app.py"), "crash()")


def test_two_dots_behind_a_link_lead_elsewhere(tmp_path: Path) -> None:
    """/srv/app -> /opt/app/bin: the parent of /srv/app is not /srv, though it has a file of that name."""
    (tmp_path / "opt" / "bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "opt" / "bin")
    written(tmp_path / "opt" / "app.py", "crash()\n")
    written(tmp_path / "app.py", "other()\n")
    frame = found(tmp_path / "link" / ".." / "app.py")
    assert (frame.file, frame.source) == (f"{tmp_path}/link/../app.py", "crash()")


def test_two_dots_of_a_file_that_is_not_here(tmp_path: Path) -> None:
    frame = found(tmp_path / "bin" / ".." / "app.py")
    assert frame.file == f"{tmp_path}/bin/../app.py"


@pytest.mark.parametrize("name", ["app.zip", "lib.egg"])
def test_the_line_of_a_module_in_a_zip_file(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/work.py", "first()\ncrash()\n")
        archive.writestr("package/secret.txt", SECRET)
        archive.writestr("package/large.py", "#" * (9 << 20))
    frame = found(tmp_path / name / "package" / "work.py", 2)
    assert (frame.source, frame.context) == ("crash()", ("first()", "crash()"))
    for other in ("secret.txt", "large.py", "none.py", "../../work.py"):
        assert_not_read(tmp_path / name / "package" / other)


def assert_not_read(path: Path) -> None:
    frame = found(path)
    assert (frame.source, frame.context, frame.context_start) == (None, (), None)


def test_a_damaged_zip_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("work.py", "crash()\n" * 100)
    data = bytearray((tmp_path / "app.zip").read_bytes())
    data[40:50] = b"\xff" * 10
    (tmp_path / "app.zip").write_bytes(data)
    assert_not_read(tmp_path / "app.zip" / "work.py")
    (tmp_path / "no.zip").write_text("crash()\n")
    assert_not_read(tmp_path / "no.zip" / "work.py")
