"""Each test computes names anew: a mutation run finds by this which tests reach a function."""

import pytest

from crashkit.naming.functions import plain


@pytest.fixture(autouse=True)
def _without_cached_names() -> None:
    plain.cache_clear()
