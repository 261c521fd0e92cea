"""The versions that are told are those of the packages that the process had loaded, not of what is merely installed."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from crashkit.collect.host.snapshot import telling_paths, versions
from crashkit.evidence.package_versions import metadata_files, package_versions
from crashkit.pipeline import Options, analyze

from ..crashes import an_interpreter, every_interpreter, python_crash


def install(folder: Path, distribution: str, *modules: str, top_level: bool = True) -> None:
    name, _, number = distribution.partition("-")
    metadata = folder / f"{name}-{number}.dist-info"
    metadata.mkdir(parents=True)
    if top_level:
        (metadata / "top_level.txt").write_text("\n".join(modules))
    else:
        (metadata / "RECORD").write_text("".join(f"{module}/__init__.py,sha256=x,1\n" for module in modules) + "../bin/x,,\n")


def test_by_the_files_of_a_package(tmp_path: Path) -> None:
    folder = tmp_path / "lib/python3.11/site-packages"
    install(folder, "numpy-2.4.6", "numpy")
    install(folder, "Pillow-11.1", "PIL")
    install(folder, "ruamel.yaml-0.18", "ruamel", top_level=False)
    install(folder, "cffi-2.0", "_cffi_backend", "cffi")
    install(folder, "flask-3.1", "flask")
    used = [
        f"{folder}/PIL/_imaging.cpython-311-x86_64-linux-gnu.so",
        f"{folder}/_cffi_backend.cpython-311-x86_64-linux-gnu.so",
        f"{folder}/numpy.libs/libscipy_openblas.so",
        f"{folder}/ruamel/yaml/main.py",
        f"{folder}/own_module.py",
        "/lib/libc.so.6",
        "/elsewhere/site-packages/flask/app.py",
    ]
    assert package_versions(used) == {"pillow": "11.1", "cffi": "2.0", "numpy": "2.4.6", "ruamel-yaml": "0.18"}
    assert package_versions(used, lambda _: None) == {}


def test_what_a_pth_file_imports_into_every_process_tells_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lib/python3.11/site-packages"
    install(folder, "setuptools-65.5.0", "_distutils_hack", "setuptools")
    assert package_versions([f"{folder}/_distutils_hack/__init__.py"]) == {}
    assert package_versions([f"{folder}/_distutils_hack/__init__.py", f"{folder}/setuptools/__init__.py"]) == {"setuptools": "65.5.0"}


def test_in_a_folder_of_any_name(tmp_path: Path) -> None:
    """`pip install --target`, a function's /var/task, an application that brings its packages along."""
    folder = tmp_path / "task"
    install(folder, "numpy-2.4.6", "numpy")
    install(folder, "Pillow-11.1", "PIL")
    used = [f"{folder}/numpy/_core/src/multi/umath.so", f"{folder}/PIL/Image.py", f"{folder}/app/main.py", f"{folder}/handler.py"]
    assert package_versions(used) == {"numpy": "2.4.6", "pillow": "11.1"}
    assert package_versions([f"{folder}/numpy.libs/libscipy_openblas.so", "/numpy", "numpy/core.py", ""]) == {"numpy": "2.4.6"}
    deep = f"{folder}/numpy/{'a/' * 40}x.py"
    assert package_versions([deep]) == {}, "a search has an end"
    found = metadata_files(used)
    assert sorted(found) == [f"{folder}/Pillow-11.1.dist-info/top_level.txt", f"{folder}/numpy-2.4.6.dist-info/top_level.txt"]


def test_of_this_process() -> None:
    """Its mapped files tell msgspec, which is loaded, and no package that only lies beside it."""
    found = versions(sys.executable, telling_paths(Path("/proc/self/maps").read_text()))
    assert found["msgspec"] == version("msgspec") == msgspec.__version__
    assert found["python"] == sys.version.split()[0]
    assert "pip" not in found


SHOP = """\
import ctypes
def buy(address):
    return ctypes.string_at(address)
"""


@pytest.mark.slow
@pytest.mark.parametrize("gdb", ["gdb", None], ids=["gdb", "pystack"])
def test_a_package_on_the_stack(gdb: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "venv/lib/python3.11/site-packages"
    install(folder, "shop-1.2.3", "shop")
    install(folder, "numpy-2.4.6", "numpy")
    (folder / "shop").mkdir()
    (folder / "shop/__init__.py").write_text(SHOP)
    script = tmp_path / "run.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\nimport shop\nshop.buy(0)\n")
    crash = analyze(python_crash(script, python=an_interpreter()).core, options=Options(gdb=gdb))
    assert crash.process is not None
    assert crash.process.versions["shop"] == "1.2.3" and "numpy" not in crash.process.versions


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_a_package_that_was_imported(python, tmp_path: Path) -> None:
    """Pure Python, and not on a stack when the process died; what lies beside it was not imported."""
    folder = tmp_path / "venv/lib/python3/site-packages"
    install(folder, "shop-1.2.3", "shop")
    install(folder, "single-4.5", "single")
    install(folder, "parts.one-0.1", "parts", top_level=False)
    install(folder, "numpy-2.4.6", "numpy")
    for name in ("shop/__init__.py", "shop/cart.py", "single.py", "numpy/__init__.py", "parts/one.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    script = tmp_path / "run.py"
    script.write_text(
        f"import sys, ctypes; sys.path.insert(0, {str(folder)!r})\nimport shop.cart, single, parts.one\nctypes.string_at(0)\n"
    )
    crash = analyze(python_crash(script, python=python).core, options=Options(gdb=None))
    assert crash.process is not None
    # An interpreter may import packages of its own as it starts.
    assert crash.process.versions.items() >= {"shop": "1.2.3", "single": "4.5", "parts-one": "0.1"}.items()
    assert "numpy" not in crash.process.versions
