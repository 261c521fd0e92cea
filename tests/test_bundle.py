"""Bundles of real crashes, analyzed where nothing of the crashed system is left."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import zstandard

from crashkit.bundling import bundle
from crashkit.crashfolder.bundle import EVIDENCE, MANIFEST, ROOT, WARNING, BundleManifest
from crashkit.crashfolder.manifest import SCHEMA, write_manifest
from crashkit.errors import CollectError, EvidenceError
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report.json import encode
from crashkit.secrets.text import MASK
from tests import bare_image
from tests.crashes import (
    CRASHERS,
    Folder,
    a_debuggable_interpreter,
    an_interpreter,
    compile_c,
    crash,
    needs_binutils,
    needs_gdb,
    python_crash,
)

pytestmark = pytest.mark.slow

SYSTEM = Path("/usr/bin/python3")
REPO = Path(__file__).parent.parent
TOKEN = "ghp_" + "b1N2d3L4" * 4 + "abcd"
PASSWORD = "correcthorse77battery"
"""In the environment, too."""
KEY = "x7Kq2mP9vR4tY8wZ"
"""In the source alone."""
SCRIPT = f'''# -*- coding: latin-1 -*-
import ctypes, os, sys, threading
# caf\xe9
def read(address):
    password = "{PASSWORD}"
    secret_key = "{KEY}"
    return ctypes.string_at(address)
print("token is {TOKEN}", file=sys.stderr, flush=True)
read(16)
'''


class Place(NamedTuple):
    """A crash of a program that can be taken away."""

    folder: Path
    made: Folder

    @property
    def evidence(self) -> list[Path]:
        return [self.made.core, self.made.path / "stderr.txt"]

    def vanish(self) -> None:
        """Delete the program and its sources."""
        shutil.rmtree(self.folder / "app")


@pytest.fixture(params=["with debug info", "as it is"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """A copy of an interpreter and a script: nothing else on this machine has their build-ids and paths."""
    return copied(tmp_path, a_debuggable_interpreter().path if request.param == "with debug info" else SYSTEM)


@pytest.fixture
def simple(tmp_path: Path) -> Place:
    """The one of the distribution is small."""
    return copied(tmp_path, SYSTEM if SYSTEM.exists() else an_interpreter().path)


def copied(folder: Path, python: Path) -> Place:
    app = folder / "app"
    (app / "lib").mkdir(parents=True)
    if not python.exists():
        pytest.skip(f"{python} is not here")
    python = python.resolve()
    shutil.copy2(python, app / python.name)
    for library in (python.parent.parent / "lib").glob("libpython*.so.*"):
        shutil.copy2(library, app / "lib")
    (app / "main.py").write_text(SCRIPT, encoding="latin-1")
    died = folder / "died"
    died.mkdir()
    home = str(python.parent.parent)
    variables = {"LD_LIBRARY_PATH": str(app / "lib"), "PYTHONHOME": home, "PYTHONFAULTHANDLER": "1", "APP_PASSWORD": PASSWORD}
    return Place(folder, crash([app / python.name, app / "main.py"], died, variables))


def report(of: Crash) -> dict[str, Any]:
    """What is compared: everything but the time that it took, and what names the archive."""
    return compared(json.loads(encode(of)))


def compared(found: dict[str, Any]) -> dict[str, Any]:
    del found["seconds"]
    found["source"].pop("archive", None)
    found.pop("next_steps", None)
    return found


def under(report: dict[str, Any], before: Path, after: str) -> dict[str, Any]:
    """The report with the evidence called otherwise."""
    found: dict[str, Any] = json.loads(json.dumps(report).replace(f"{before}/", after))
    return found


def differences(one: Any, other: Any, at: str = "report") -> Iterator[str]:
    """Field by field."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from differences(one.get(name, "absent"), other.get(name, "absent"), f"{at}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{at}[{index}]")
    elif one != other:
        yield f"{at}: {one!r} != {other!r}"


def contents(bundled: Path) -> dict[str, bytes]:
    with bundled.open("rb") as file, tarfile.open(fileobj=zstandard.ZstdDecompressor().stream_reader(file), mode="r|") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def packed(target: Path, files: dict[str, bytes]) -> Path:
    """A bundle that somebody else made."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size, header.mtime = len(content), 1_700_000_000
            archive.addfile(header, io.BytesIO(content))
    target.write_bytes(zstandard.compress(plain.getvalue()))
    return target


def manifest_of(files: dict[str, bytes]) -> BundleManifest:
    return msgspec.json.decode(files[MANIFEST], type=BundleManifest)


class TestTheSameReport:
    @needs_gdb
    def test_where_nothing_of_the_program_is_left(self, place: Place) -> None:
        here = report(analyze(place.evidence))
        made = bundle(place.evidence, place.folder / "x.tar.zst")
        place.vanish()
        without = report(analyze(place.evidence))
        assert "!= 'missing'" in "".join(differences(here, without)), "it is needed"
        (place.made.path / "core").unlink()
        there = report(analyze(made.path))
        assert list(differences(under(here, place.made.path, f"{made.path}/{EVIDENCE}/"), there)) == []
        assert not made.manifest.missing

    @pytest.mark.chroot
    @bare_image.needed
    def test_in_a_bare_system(self, place: Place) -> None:
        options = Options(gdb=None)
        here = report(analyze(place.evidence, options=options))
        (place.folder / "carried").mkdir()
        bundle(place.evidence, place.folder / "carried" / "x.tar.zst", options=options)
        done = bare_image.crashkit(
            "analyze",
            "/tmp/x.tar.zst",
            "--json",
            "--no-gdb",
            root=place.folder / "bare",
            writable="evidence",
            folder=place.folder / "carried",
        )
        assert done.returncode == 0, done.stderr
        there = compared(json.loads(done.stdout))
        assert "\n".join(differences(under(here, place.made.path, f"/tmp/x.tar.zst/{EVIDENCE}/"), there)) == ""

    @needs_gdb
    @needs_binutils
    def test_with_the_debug_info_in_a_separate_file(self, tmp_path: Path) -> None:
        (tmp_path / "app").mkdir()
        (tmp_path / "died").mkdir()
        program = tmp_path / "app" / "program"
        compile_c(CRASHERS / "no_python.c", program)
        subprocess.run(["objcopy", "--only-keep-debug", program, f"{program}.debug"], check=True)
        subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={program}.debug", program], check=True)
        made = crash([program], tmp_path / "died")
        here = report(analyze(made.core))
        bundled = bundle([made.core], tmp_path / "x.tar.zst")
        assert "debug-info" in [file.kind for file in bundled.manifest.files if "/app/" not in file.name]
        shutil.rmtree(tmp_path / "app")
        without = report(analyze(made.core))
        assert "no_python.c" in json.dumps(here) and "no_python.c" not in json.dumps(without), "it is needed"
        there = report(analyze(bundled.path))
        assert list(differences(under(here, made.path, f"{bundled.path}/{EVIDENCE}/"), there)) == []

    @needs_gdb
    def test_of_threads_with_the_tests_own_python(self, tmp_path: Path) -> None:
        made = python_crash("threads.py")
        there = report(analyze(bundle([made.core], tmp_path / "x.tar.zst").path))
        assert list(differences(under(report(analyze(made.core)), made.path, f"{tmp_path}/x.tar.zst/{EVIDENCE}/"), there)) == []

    def test_of_a_compressed_core_and_a_hidden_log(self, simple: Place) -> None:
        core, log = simple.folder / "core.zst", simple.folder / ".z.log.gz"
        core.write_bytes(zstandard.compress(simple.made.core.read_bytes()))
        log.write_bytes(subprocess.run(["gzip", "-c", simple.evidence[1]], capture_output=True, check=True).stdout)
        options = Options(gdb=None)
        here = report(analyze([core, log], options=options))
        made = bundle([core, log], simple.folder / "x.tar.zst", options=options)
        there = report(analyze(made.path, options=options))
        assert there["source"]["compression"] == "zstd" and there["log"][0]["path"].endswith("/evidence/z.log")
        for one in (here, there):
            del one["source"]["path"]
            for line in one["log"]:
                del line["path"]
        assert list(differences(here, there)) == []

    def test_of_a_bundle_of_a_bundle(self, simple: Place) -> None:
        options = Options(gdb=None)
        first = bundle(simple.evidence, simple.folder / "x.tar.zst", options=options)
        simple.vanish()
        second = bundle([first.path], simple.folder / "y.tar.zst", options=options)
        one, other = contents(first.path), contents(second.path)
        assert one == other


class TestSecrets:
    @pytest.fixture
    def files(self, simple: Place) -> dict[str, bytes]:
        shutil.copy(simple.evidence[1], simple.folder / "other.log")
        folder = simple.folder / "crash"
        folder.mkdir()
        shutil.copy(simple.made.core, folder / "core")
        (folder / "stderr.log").write_text(f"connecting with {PASSWORD}\n{simple.made.stderr}")
        (folder / "report.json").write_text(PASSWORD)
        write_manifest(
            folder,
            {
                "schema": SCHEMA,
                "id": "20260101T000000-1-python3.11",
                "argv": ["python", "--password", PASSWORD],
                "environment": {"API_TOKEN": TOKEN},
                "notes": [f"used {TOKEN}"],
                "files": [{"name": "core", "kind": "core"}, {"name": "stderr.log", "kind": "log"}],
            },
        )
        return contents(bundle([folder], simple.folder / "x.tar.zst", options=Options(gdb=None)).path)

    def test_are_in_no_text(self, files: dict[str, bytes]) -> None:
        manifest = manifest_of(files)
        texts = [file.name for file in manifest.files if file.masked]
        kinds = {file.kind: file.masked for file in manifest.files}
        assert kinds == {"manifest": True, "log": True, "source": True, "core": False, "module": False} | {
            kind: kind == "package" for kind in kinds if kind in ("debug-info", "package", "unwind-tables")
        }
        told = [name for name in (MANIFEST, *texts) for secret in (PASSWORD, TOKEN, KEY) if secret.encode() in files[name]]
        assert told == []
        assert MASK.encode() in files[f"{EVIDENCE}/stderr.log"] and MASK.encode() in files[f"{EVIDENCE}/manifest.json"]
        assert f"{EVIDENCE}/report.json" not in files

    def test_are_in_the_core_which_is_said(self, files: dict[str, bytes]) -> None:
        assert PASSWORD.encode() in files[f"{EVIDENCE}/core"]
        assert manifest_of(files).warning == WARNING and "not masked" in WARNING

    def test_lines_stay_where_they_are(self, files: dict[str, bytes]) -> None:
        (source,) = (content for name, content in files.items() if name.endswith("/main.py"))
        lines = source.decode("latin-1").splitlines()
        assert lines == [line.replace(PASSWORD, MASK).replace(TOKEN, MASK).replace(KEY, MASK) for line in SCRIPT.splitlines()]

    def test_a_crash_folders_manifest_is_read_again(self, files: dict[str, bytes], simple: Place) -> None:
        again = analyze(packed(simple.folder / "again.tar.zst", files), options=Options(gdb=None))
        assert again.id == "20260101T000000-1-python3.11" and again.process and again.process.environment["API_TOKEN"] == MASK


class TestManifest:
    def test_tells_each_file(self, simple: Place) -> None:
        files = contents(bundle(simple.evidence, simple.folder / "x.tar.zst", options=Options(gdb=None)).path)
        manifest = manifest_of(files)
        assert [*files] == [MANIFEST, *(file.name for file in manifest.files)], "it comes first"
        assert manifest.files[-1].kind == "core", "what is largest comes last"
        for file in manifest.files:
            assert (file.size, file.sha256) == (len(files[file.name]), hashlib.sha256(files[file.name]).hexdigest())
        modules = [file for file in manifest.files if file.kind == "module"]
        assert modules and all(file.path and file.name == f"{ROOT}{file.path}" for file in modules)
        assert any(file.build_id for file in modules)

    def test_the_same_evidence_gives_the_same_bytes(self, simple: Place) -> None:
        made = [bundle(simple.evidence, simple.folder / f"{name}.tar.zst", options=Options(gdb=None)).path for name in "xy"]
        assert made[0].read_bytes() == made[1].read_bytes()


class TestDamage:
    @pytest.fixture
    def files(self, simple: Place) -> dict[str, bytes]:
        files = contents(bundle(simple.evidence, simple.folder / "x.tar.zst", options=Options(gdb=None)).path)
        # Without what is large: these tests make many of them.
        kept = {name: content for name, content in files.items() if len(content) < 100_000 or name == f"{EVIDENCE}/core"}
        manifest = manifest_of(files)
        listed = tuple(file for file in manifest.files if file.name in kept)
        return {**kept, MANIFEST: msgspec.json.encode(msgspec.structs.replace(manifest, files=listed))}

    def told(self, path: Path) -> list[str]:
        found = analyze(path, options=Options(gdb=None))
        assert found.process is not None
        return [error.message for error in found.soft_errors if error.stage == "archive"]

    def test_none(self, files: dict[str, bytes], tmp_path: Path) -> None:
        assert self.told(packed(tmp_path / "y.tar.zst", files)) == []

    def test_a_wrong_checksum_names_the_file(self, files: dict[str, bytes], tmp_path: Path) -> None:
        (name,) = (name for name in files if name.endswith("/main.py"))
        path = packed(tmp_path / "y.tar.zst", {**files, name: b"import evil\n" * 9})
        assert self.told(path) == [f"{path}: {name} is not as bundled: the checksum differs"]

    def test_a_missing_file_is_named(self, files: dict[str, bytes], tmp_path: Path) -> None:
        (name,) = (name for name in files if name.endswith("/main.py"))
        path = packed(tmp_path / "y.tar.zst", {other: content for other, content in files.items() if other != name})
        assert self.told(path) == [f"{path}: {name} is missing from the bundle"]

    def test_a_damaged_manifest(self, files: dict[str, bytes], tmp_path: Path) -> None:
        path = packed(tmp_path / "y.tar.zst", {**files, MANIFEST: files[MANIFEST][:-5]})
        assert self.told(path) == [f"{path}: {MANIFEST} is damaged, so the checksums of its files are unknown"]

    def test_a_truncated_one_says_what_is_missing(self, files: dict[str, bytes], tmp_path: Path) -> None:
        path = packed(tmp_path / "y.tar.zst", files)
        whole = zstandard.decompress(path.read_bytes())
        path.write_bytes(zstandard.compress(whole[: len(whole) - len(files[f"{EVIDENCE}/core"]) // 2]))
        first, second = self.told(path)
        assert "damaged or truncated" in first and second == f"{path}: {EVIDENCE}/core is not as bundled: the checksum differs"

    def test_only_its_beginning(self, files: dict[str, bytes], tmp_path: Path) -> None:
        path = packed(tmp_path / "y.tar.zst", {MANIFEST: files[MANIFEST]})
        with pytest.raises(EvidenceError, match=f"^{path} contains no evidence of a crash$"):
            analyze(path)

    @pytest.mark.parametrize("odd", [b"null", b"[]", b"{}", b"[" * 100_000, b'{"schema": "crashkit.bundle/1", "files": [{"name": 1}]}'])
    def test_any_manifest(self, odd: bytes, files: dict[str, bytes], tmp_path: Path) -> None:
        (told,) = self.told(packed(tmp_path / "y.tar.zst", {**files, MANIFEST: odd}))
        assert "is damaged" in told

    def test_of_a_newer_crashkit(self, files: dict[str, bytes], tmp_path: Path) -> None:
        newer = {**files, MANIFEST: b'{"schema": "crashkit.bundle/2"}'}
        with pytest.raises(CollectError, match=r"a format that this version does not know: crashkit\.bundle/2"):
            analyze(packed(tmp_path / "y.tar.zst", newer))


class TestNothingRuns:
    @needs_gdb
    def test_what_a_bundle_brings(self, tmp_path: Path) -> None:
        """libpython.py and gdb's other scripts, beside every module, where gdb and crashkit look for them."""
        python = a_debuggable_interpreter()
        made = python_crash("threads.py", python=python)
        files = contents(bundle([made.core], tmp_path / "x.tar.zst").path)
        ran = tmp_path / "ran"
        script = f"open({str(ran)!r}, 'a').write(__name__)\n".encode()
        planted: dict[str, bytes] = {}
        for name in [name for name in files if name.startswith(f"{ROOT}/")]:
            path = name.removeprefix(ROOT)
            planted |= {f"{name}-gdb.py": script, f"{name}-gdb.gdb": f"shell touch {ran}\n".encode()}
            planted[f"{ROOT}/usr/share/gdb/auto-load{path}-gdb.py"] = script
            planted[f"{ROOT}/usr/lib/debug{path}-gdb.py"] = script
        for folder in ("", EVIDENCE, ROOT):
            planted |= {f"{folder}/{name}".lstrip("/"): script for name in ("sitecustomize.py", ".gdbinit", "libpython.py", "json.py")}
        found = analyze(packed(tmp_path / "y.tar.zst", {**files, **planted}))
        assert not ran.exists()
        assert any("files that came with the crash are not run" in error.message for error in found.soft_errors)
        assert found.python and not (found.python.script or "").startswith(str(tmp_path))

    def test_a_source_of_this_machine_is_not_read_in_its_place(self, simple: Place) -> None:
        """What the bundle lacks is missing, whatever lies at the same path here."""
        files = contents(bundle(simple.evidence, simple.folder / "x.tar.zst", options=Options(gdb=None)).path)
        (name,) = (name for name in files if name.endswith("/main.py"))
        del files[name]
        found = analyze(packed(simple.folder / "y.tar.zst", files), options=Options(gdb=None))
        frames = [frame for thread in found.threads for frame in thread.pythons() if (frame.file or "").endswith("main.py")]
        assert frames and not any(frame.source for frame in frames)
        assert Path(f"/{name.removeprefix(ROOT)}").exists()


class TestArchives:
    """Of one crash, of any tool."""

    def zipped(self, target: Path, files: dict[str, Path]) -> Path:
        with zipfile.ZipFile(target, "w") as archive:
            for name, path in files.items():
                archive.write(path, name)
        return target

    def test_a_zip_of_a_core_with_its_log_and_its_program(self, simple: Place) -> None:
        app = next(path for path in (simple.folder / "app").iterdir() if path.name.startswith("python"))
        names = {"artefacts/core.1": simple.made.core, "artefacts/logs/stderr.txt": simple.evidence[1], "bin/x": app}
        path = self.zipped(simple.folder / "x.zip", names)
        simple.vanish()
        found = analyze(path, options=Options(gdb=None))
        assert found.source and found.source.path == f"{path}/artefacts/core.1" and found.log[0].path == f"{path}/artefacts/logs/stderr.txt"
        assert [module.found for module in found.modules if module.path == str(app)] == [f"{path}/bin/x"]
        assert not [error for error in found.soft_errors if error.stage in ("archive", "evidence")]

    def test_a_tar_of_a_crash_folder(self, simple: Place) -> None:
        folder = simple.folder / "ID"
        folder.mkdir()
        shutil.copy(simple.made.core, folder / "core")
        write_manifest(folder, {"schema": SCHEMA, "id": "20260101T000000-1-x", "files": [{"name": "core", "kind": "core"}]})
        subprocess.run(["tar", "-C", simple.folder, "-czf", simple.folder / "x.tgz", "ID"], check=True)
        found = analyze(simple.folder / "x.tgz", options=Options(gdb=None))
        assert found.id == "20260101T000000-1-x"

    def test_a_bundle_in_a_zip_in_a_zip(self, simple: Place) -> None:
        made = bundle(simple.evidence, simple.folder / "x.tar.zst", options=Options(gdb=None))
        outer = made.path
        for name in ("y.zip", "z.zip"):
            outer = self.zipped(simple.folder / name, {f"artefact/{outer.name}": outer})
        found = analyze(outer, options=Options(gdb=None))
        assert found.source and found.source.path == f"{outer}/artefact/y.zip/artefact/x.tar.zst/evidence/core"
        assert [module.found for module in found.modules if module.found] == []

    def test_archives_without_end(self, simple: Place) -> None:
        inner = simple.made.core
        for number in range(8):
            inner = self.zipped(simple.folder / f"{number}.zip", {inner.name: inner})
        with pytest.raises(EvidenceError) as raised:
            analyze(inner, options=Options(gdb=None))
        assert "crashkit-scratch" not in f"{raised.value} {raised.value.hint}" and str(inner) in str(raised.value)

    def test_without_evidence(self, tmp_path: Path) -> None:
        (tmp_path / ".hidden").touch()
        with pytest.raises(EvidenceError, match="contains no evidence of a crash"):
            analyze(self.zipped(tmp_path / "x.zip", {".hidden": tmp_path / ".hidden"}))

    def test_two_crashes(self, simple: Place) -> None:
        path = self.zipped(simple.folder / "x.zip", {"a/core": simple.made.core, "b/core": simple.made.core})
        with pytest.raises(EvidenceError, match="these are 2 crashes") as raised:
            analyze(path)
        assert f"crashkit ci {path}" in str(raised.value.hint)

    def test_nothing_is_left_behind(self, simple: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        temporary = simple.folder / "temporary"
        temporary.mkdir()
        monkeypatch.setenv("TMPDIR", str(temporary))
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        made = bundle(simple.evidence, simple.folder / "x.tar.zst", options=Options(gdb=None))
        analyze(made.path, options=Options(gdb=None))
        with pytest.raises(EvidenceError):
            analyze(packed(simple.folder / "y.tar.zst", {"bundle.json": b""}))
        assert list(temporary.iterdir()) == []


class TestWriting:
    def test_refuses_to_overwrite(self, simple: Place) -> None:
        target = simple.folder / "x.tar.zst"
        for make in (lambda: target.write_text("mine"), lambda: target.symlink_to("nowhere")):
            make()
            with pytest.raises(CollectError, match="exists already") as raised:
                bundle(simple.evidence, target, options=Options(gdb=None))
            assert "--force" in raised.value.hint
            assert target.is_symlink() or target.read_text() == "mine"
            target.unlink()
        target.write_text("mine")
        assert bundle(simple.evidence, target, options=Options(gdb=None), replace=True).size == target.stat().st_size > 1000

    def test_nothing_half_written(self, simple: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("crashkit.crashfolder.bundle._header", full)
        target = simple.folder / "out" / "x.tar.zst"
        target.parent.mkdir()
        with pytest.raises(CollectError, match=r"cannot write the bundle .*: No space left on device"):
            bundle(simple.evidence, target, options=Options(gdb=None))
        assert list(target.parent.iterdir()) == []

    def test_only_its_owner_reads_it(self, simple: Place) -> None:
        assert bundle(simple.evidence, simple.folder / "x.tar.zst", options=Options(gdb=None)).path.stat().st_mode & 0o777 == 0o600

    def test_a_file_that_changes_meanwhile(self, simple: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        from crashkit.crashfolder import bundle as format

        real: Callable[..., object] = format._write

        def changing(*given: Any) -> object:
            with simple.made.core.open("ab") as core:
                core.truncate(simple.made.core.stat().st_size - 4096)
            return real(*given)

        monkeypatch.setattr(format, "_write", changing)
        with pytest.raises(CollectError, match="core changed while it was bundled"):
            bundle(simple.evidence, simple.folder / "x.tar.zst", options=Options(gdb=None))
        assert not (simple.folder / "x.tar.zst").exists()

    def test_a_sparse_core_stays_small(self, simple: Place) -> None:
        plain = bundle(simple.evidence, simple.folder / "x.tar.zst", options=Options(gdb=None)).size
        with simple.made.core.open("r+b") as core:
            core.truncate(simple.made.core.stat().st_size + (256 << 20))
        assert bundle(simple.evidence, simple.folder / "y.tar.zst", options=Options(gdb=None)).size < plain + (128 << 10)


class TestCommand:
    def run(self, *arguments: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(REPO), "CRASHKIT_HOME": str(folder / "store"), **variables}
        command = [sys.executable, "-m", "crashkit", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)

    def test_says_what_is_in_it_and_that_it_holds_secrets(self, simple: Place) -> None:
        done = self.run("bundle", *simple.evidence, "--no-gdb", "-o", "x.tar.zst", folder=simple.folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("x.tar.zst: ") and "1 core, 1 log, " in done.stdout and done.stdout.count("\n") == 1
        assert WARNING in done.stderr

    def test_a_log_that_is_gone_beside_the_core(self, simple: Place) -> None:
        """As for analyze: with and without a crash store, in which it could have been an id."""
        for _ in range(2):
            done = self.run("bundle", *simple.evidence, "gone.log", "--no-gdb", "--force", "-o", "x.tar.zst", folder=simple.folder)
            assert done.returncode == 0 and "gone.log does not exist: it is not in the bundle" in done.stderr
            (simple.folder / "store").mkdir(mode=0o700, exist_ok=True)

    def test_a_crash_of_the_store_by_its_id(self, simple: Place) -> None:
        done = self.run("bundle", "4711", folder=simple.folder)
        assert done.returncode == 1 and "4711 does not exist" in done.stderr
        crash = simple.folder / "store" / "20260101T000000-4711-python3"
        crash.mkdir(parents=True)
        crash.parent.chmod(0o700)
        shutil.copy(simple.made.core, crash / "core")
        write_manifest(crash, {"schema": SCHEMA, "id": crash.name, "pid": 4711, "files": [{"name": "core", "kind": "core"}]})
        done = self.run("bundle", "4711", "--no-gdb", "--quiet", folder=simple.folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{crash.name}.tar.zst\n" and (simple.folder / f"{crash.name}.tar.zst").exists()
        again = self.run("analyze", f"{crash.name}.tar.zst", "--no-gdb", "--brief", folder=simple.folder)
        assert again.returncode == 0 and "SIGSEGV" in again.stdout

    @pytest.mark.parametrize(
        ("arguments", "status", "words"),
        [
            (["nothing"], 1, "nothing does not exist"),
            (["empty"], 1, "empty is empty"),
            (["core", "-o", "x.zip"], 2, "must end in .tar.zst"),
            (["fifo"], 1, "fifo is neither a file nor a folder"),
            (["-"], 1, "- is neither a file nor a folder"),
            ([], 2, "Missing argument"),
        ],
    )
    def test_bad_input(self, arguments: list[str], status: int, words: str, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        os.mkfifo(tmp_path / "fifo")
        done = self.run("bundle", *arguments, folder=tmp_path)
        assert done.returncode == status and words in done.stderr and "Traceback" not in done.stderr
        assert not list(tmp_path.glob("*.tar.zst"))

    def test_an_archive_cannot_come_through_a_pipe(self, tmp_path: Path) -> None:
        path = packed(tmp_path / "x.tar.zst", {f"{EVIDENCE}/log": b"Fatal Python error: Aborted\n"})
        command = [sys.executable, "-m", "crashkit", "analyze", "-"]
        environment = {**os.environ, "PYTHONPATH": str(REPO)}
        done = subprocess.run(command, input=path.read_bytes(), env=environment, cwd=tmp_path, capture_output=True, timeout=120)
        assert done.returncode == 1 and b"is an archive that was not unpacked: it came through a pipe" in done.stderr
        assert done.stderr.count(b"\n") == 2

    def test_ids_and_files_are_completed(self, simple: Place) -> None:
        crash = simple.folder / "store" / "20260101T000000-4711-python3"
        crash.mkdir(parents=True)
        crash.parent.chmod(0o700)
        write_manifest(crash, {"schema": SCHEMA, "id": crash.name})
        asked = {"_CRASHKIT_COMPLETE": "bash_complete", "COMP_WORDS": "crashkit bundle 2026", "COMP_CWORD": "2"}
        entry = "from crashkit.cli import group; group.main(prog_name='crashkit')"
        environment = {**os.environ, "PYTHONPATH": str(REPO), "CRASHKIT_HOME": str(simple.folder / "store"), **asked}
        done = subprocess.run([sys.executable, "-c", entry], env=environment, capture_output=True, text=True)
        assert done.stdout.splitlines() == [f"plain,{crash.name}", "file,2026"]
