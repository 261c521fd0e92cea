"""Whose code a frame is, by its file and function alone."""

from __future__ import annotations

import pytest

from crashkit.model import NativeFrame, PythonFrame, Thread
from crashkit.naming.own_code import is_own, own_line, python_frames

OWN = [
    ("/srv/app/server.py", "handle"),
    ("server.py", "handle"),  # CPython 3.8 and older
    ("/home/me/lib/tool.py", "run"),
    ("/home/me/python/lib/tool.py", "run"),
    ("C:\\Users\\me\\project\\server.py", "handle"),
    ("C:\\project\\Lib\\tool.py", "run"),
    ("/Users/me/project/server.py", "handle"),
    ("/srv/app/bin/serve", "handle"),
    ("/srv/app/bin/serve.py", "<module>"),
    ("/srv/app/__main__.py", "<module>"),
    ("/srv/app.pyz/shop/cart.py", "add"),
    ("<string>", "<module>"),
    ("<string>", "work"),
    ("<stdin>", "work"),
    ("<console>", "<module>"),
    ("<python-input-0>", "<module>"),
    ("<ipython-input-3-0a1b2c3d4e5f>", "<cell line: 1>"),
    ("<ipython-input-3>", "<module>"),
    ("/tmp/ipykernel_991204/3812664012.py", "<module>"),
    ("C:\\Users\\me\\AppData\\Local\\Temp\\ipykernel_7\\1.py", "f"),
    ("Cell In[3]", "<module>"),
    ("Cell In [3]", "<module>"),
    ("Input In [3]", "<module>"),
    ("<command-4067>", "<module>"),
    ("<doctest server.handle[0]>", "<module>"),
    ("/srv/app/server.py", "__init__"),
]

NOT_OWN = [
    (None, "f"),
    ("", "f"),
    ("<frozen importlib._bootstrap>", "_find_and_load"),
    ("<frozen runpy>", "_run_code"),
    ("<frozen zipimport>", "load_module"),
    ("<__array_function__ internals>", "dot"),
    ("<eval_with_key>.3", "forward"),
    ("<attrs generated init shop.Cart>", "__init__"),
    ("<string>", "__init__"),
    ("<string>", "__create_fn__"),
    ("<string>", "Point.__eq__"),
    ("/usr/lib/python3.11/threading.py", "run"),
    ("/usr/lib64/python3.9/threading.py", "run"),
    ("/usr/local/lib/python3.13t/threading.py", "run"),
    ("/usr/lib/python3/dist-packages/requests/api.py", "get"),
    ("/srv/venv/lib/python3.11/site-packages/torch/nn/modules/rnn.py", "forward"),
    ("/srv/venv/lib64/python3.11/site-packages/torch/nn/modules/rnn.py", "forward"),
    ("/home/me/.pyenv/versions/3.11.7/lib/python3.11/asyncio/events.py", "_run"),
    ("/opt/conda/lib/python3.10/ctypes/__init__.py", "string_at"),
    ("/opt/conda/envs/train/lib/python3.10/ctypes/__init__.py", "string_at"),
    ("/home/me/.local/lib/python3.11/site-packages/x.py", "f"),
    ("/usr/lib/pypy3.10/threading.py", "run"),
    ("/opt/pypy/lib-python/3/threading.py", "run"),
    ("/Library/Frameworks/Python.framework/Versions/3.11/lib/python3.11/threading.py", "run"),
    ("/opt/homebrew/lib/python3.11/site-packages/numpy/core/numeric.py", "ones"),
    ("C:\\Python311\\Lib\\threading.py", "run"),
    ("C:\\Python27\\lib\\threading.py", "run"),
    ("C:\\Users\\me\\AppData\\Local\\Programs\\Python\\Python311\\Lib\\threading.py", "run"),
    ("C:\\ProgramData\\Miniconda3\\Lib\\threading.py", "run"),
    ("C:\\ProgramData\\Miniconda3\\envs\\train\\Lib\\site-packages\\numpy\\a.py", "f"),
    ("C:\\venv\\Lib\\site-packages\\numpy\\a.py", "f"),
    ("/srv/app.zip/site-packages/click/core.py", "main"),
    ("/usr/lib/python311.zip/threading.py", "run"),
    ("/srv/venv/bin/gunicorn", "<module>"),
    ("/srv/venv/bin/pip3.11", "<module>"),
    ("/opt/app/bin/gunicorn", "<module>"),
    ("/opt/conda/bin/torchrun", "<module>"),
    ("/home/me/.local/bin/uvicorn", "<module>"),
    ("/usr/local/bin/celery", "<module>"),
    ("/usr/bin/celery", "<module>"),
    ("/usr/bin/apport-cli", "parse"),
    ("/srv/venv/bin/celery", "importlib_load_entry_point"),
    ("C:\\venv\\Scripts\\gunicorn-script.py", "<module>"),
    ("C:\\venv\\Scripts\\gunicorn.exe\\__main__.py", "<module>"),
    ("/srv/app.pyz/__main__.py", "<module>"),
    ("/srv/app.pyz/_bootstrap/__init__.py", "bootstrap"),
    ("/home/me/.pex/unzipped_pexes/1/ab/.bootstrap/pex/pex.py", "execute"),
    ("threading.py", "run"),  # PyInstaller
    ("ctypes/__init__.py", "string_at"),
    ("PyInstaller/loader/pyimod02_importers.py", "exec_module"),
    ("/tmp/torchinductor_me/ab/cabcdef.py", "call"),
    ("/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", "main"),
]


@pytest.mark.parametrize(("file", "function"), OWN)
def test_own(file: str, function: str) -> None:
    assert is_own(PythonFrame(file=file, function=function, line=1))


@pytest.mark.parametrize(("file", "function"), NOT_OWN)
def test_not_own(file: str | None, function: str) -> None:
    assert not is_own(PythonFrame(file=file, function=function, line=1))


@pytest.mark.parametrize("file", ["cupy/_core/core.pyx", "pandas/_libs/hashtable_class_helper.pxi", "src/lxml/etree.pyx"])
def test_a_cython_module_of_a_package_in_a_traceback(file: str) -> None:
    """Where it is installed is not in the text. A core has the module's file."""
    assert not is_own(PythonFrame(file=file, function="get", origin="traceback"))
    assert is_own(PythonFrame(file=file, function="get"))
    for own in ("fast.pyx", "/srv/app/fast.pyx"):
        assert is_own(PythonFrame(file=own, function="get", origin="traceback"))


def test_the_innermost_of_ones_own_is_the_line_to_look_at() -> None:
    frames = [PythonFrame(file=file, function=function) for file, function in (NOT_OWN[11], OWN[0], OWN[1])]
    assert own_line(frames) is frames[1]
    assert own_line(frames[:1]) is None


def test_a_signal_handler_written_in_python_is_not_where_it_happened() -> None:
    handler, work = PythonFrame(file="/srv/handler.py", function="on_fault"), PythonFrame(file="/srv/work.py", function="work")
    thread = Thread(frames=(NativeFrame(function="callback"), handler, NativeFrame(function="?", trust="signal"), work))
    assert python_frames(thread) == [work]
    assert python_frames(Thread(frames=thread.frames[:3])) == [handler]  # nothing is known below it
    assert python_frames(Thread(frames=thread.frames, python_frames=(handler, work))) == [handler, work]
