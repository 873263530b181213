"""The command line of a benchmark, whose `--help` is the docstring of its module."""

from __future__ import annotations

import argparse
import sys


def parser() -> argparse.ArgumentParser:
    """Return a parser for the module that runs."""
    module = sys.modules["__main__"]
    name = module.__spec__.name.removesuffix(".__main__") if module.__spec__ else module.__name__
    return argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
