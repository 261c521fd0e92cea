"""Names the cause: signatures over a finished crash. Pure."""

from __future__ import annotations

from crashkit.diagnose.catalog import Catalog, load_catalog
from crashkit.diagnose.engine import diagnose

__all__ = ["Catalog", "diagnose", "load_catalog"]
