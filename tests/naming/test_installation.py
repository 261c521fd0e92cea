"""Who installed an interpreter, and what that means for advice."""

from __future__ import annotations

import pytest

from crashkit.naming.installation import for_conda, how_to_get_debug_info, is_of_conda
from crashkit.naming.musl import is_musl


@pytest.mark.parametrize(
    ("path", "prefix", "expected"),
    [
        ("/home/me/miniforge3/envs/crashy/bin/python3.12", None, True),
        ("/opt/conda/bin/python", None, True),
        ("/home/me/.conda/envs/a/bin/python3.9", None, True),
        ("/work/.pixi/envs/default/bin/python3.13", None, True),
        ("/data/tools/env/bin/python3.11", "/data/tools/env", True),
        ("/data/tools/env2/bin/python3.11", "/data/tools/env", False),
        ("/usr/bin/python3.11", "/opt/conda", False),
        ("/home/me/.pyenv/versions/3.11.7/bin/python3.11", None, False),
        ("/home/me/condaments/bin/python3", None, False),
    ],
)
def test_conda(path: str, prefix: str | None, expected: bool) -> None:
    assert is_of_conda(path, prefix) == expected


@pytest.mark.parametrize(
    ("path", "conda", "musl", "words"),
    [
        ("/usr/bin/python3.11", False, False, "apt-get install python3.11-dbg"),
        ("/usr/lib64/libpython3.11.so.1.0", False, False, "dnf debuginfo-install python3.11"),
        ("/usr/lib/libpython3.11.so.1.0", False, True, "apk add python3-dbg musl-dbg"),
        ("/usr/local/lib/libpython3.11.so.1.0", False, True, "pyenv install 3.11"),
        ("/opt/conda/bin/python3.11", True, False, "conda's packages have none"),
    ],
)
def test_debug_info_is_of_whoever_packaged_the_interpreter(path: str, conda: bool, musl: bool, words: str) -> None:
    hint = how_to_get_debug_info(path, "3.11", conda, musl)
    assert words in hint


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("pip install --upgrade torch   # newer versions check more", "conda update torch"),
        ("pip install --upgrade numpy scipy", "conda update numpy scipy"),
        ("pip install --force-reinstall --no-cache-dir numpy", "conda install --force-reinstall numpy"),
        ("pip install 'numpy<2'", None),
        ("pip install torch --index-url https://download.pytorch.org/whl/cu118", None),
        ("pip install --no-binary psycopg2 psycopg2", None),
        ("pip install --upgrade ...", None),
        ("OMP_NUM_THREADS=1 python train.py", None),
    ],
)
def test_fixes_in_conda(text: str, added: str | None) -> None:
    assert for_conda(text) == (text if added is None else f"{text}\n{added}   # where conda installed it: see conda list")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/lib/ld-musl-x86_64.so.1", True),
        ("/lib/libc.musl-aarch64.so.1", True),
        ("/usr/lib/x86_64-linux-musl/libc.so", True),
        ("/usr/lib/libc.so", True),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", False),
        ("/lib64/ld-linux-x86-64.so.2", False),
        ("/opt/libmusl-parse.so", False),
    ],
)
def test_musl(path: str, expected: bool) -> None:
    assert is_musl(path) == expected
