"""`python -m crashkit`. Python looks for modules in the working directory first then: that ends here, before more is imported."""

import os
import sys


def _leave_working_directory() -> None:
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return
    first, own = sys.path[0], os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (imports nothing)
    try:
        if first != own and first in ("", os.getcwd()):  # noqa: PTH109
            del sys.path[0]
    except FileNotFoundError:
        pass  # it was removed: nothing is imported from there


if __name__ == "__main__":
    _leave_working_directory()
    from crashkit.cli import main

    main()
