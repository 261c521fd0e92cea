"""An import that somebody typed, and the process died on the next line: a library crashed while it was loaded, whatever it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crashkit.model import Crash

ID = "library-init-crash"
END = "Segmentation fault (core dumped)"

LOADED = [
    f">>> import torch\n{END}",
    f">>> import numpy as np\n{END}",
    ">>> import cv2, torch\nBus error (core dumped)\n",
    f">>> from scipy.linalg import (lapack, blas as b)\n{END}",
    f">>> from rasterio import *   # it dies here\n{END}",
    f"Python 3.12.1 on linux\n>>> import os\n>>> import pyarrow.parquet\n{END}",
    f"In [1]: import faiss\n{END}",
    "$ python -c 'import lightgbm'\nzsh: segmentation fault  python -c 'import lightgbm'",
    f'me@host:~$ python3.11 -X faulthandler -c "import jax; import jaxlib.xla_client as x"\n{END}',
    'C> python.exe -c "from PyQt5 import QtCore"\nSegmentation fault',
    ">>> import h5py\n\nAborted (core dumped)",
]
NOT = [
    f">>> import torch\n>>> torch.zeros(1)\n{END}",
    f">>> import torch; torch.zeros(1)\n{END}",
    f"import torch\n{END}",
    f">>> import_data('x.csv')\n{END}",
    f"$ python -c 'import torch; torch.zeros(1).cuda()'\n{END}",
    f"$ python -c 'import torch\nprint(torch.rand(1))'\n{END}",
    f">>> import torch\nLoading the model\n{END}",
    ">>> import torch\nKilled",
    ">>> import torch\nIllegal instruction (core dumped)",
    f"Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007fb9015dd740 (most recent call first):\n"
    f'  File "<stdin>", line 1 in <module>\n>>> import torch\n{END}',
    f"It crashes when librosa is imported before torch, and works the other way round.\n>>> import torch\n{END}",
]


@pytest.mark.parametrize("text", LOADED)
def test_nothing_but_the_import_ran(told: Callable[[str], Crash], text: str) -> None:
    first = told(text).findings[0]
    assert (first.id, first.confidence) == (ID, "possible")
    assert any("import" in one.text for one in first.evidence)


@pytest.mark.parametrize("text", NOT)
def test_something_else_may_have_run_or_tells_more(told_ids: Callable[[str], list[str]], text: str) -> None:
    assert ID not in told_ids(text)[:1]
