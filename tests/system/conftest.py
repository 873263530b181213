"""Fixtures for browsers and third-party clients: npm's packages, a writer with scripted agents."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import cloned, dsn_of
from tests.support.paths import AGUI
from tests.support.writer_fixtures import writer, writer_dsn  # noqa: F401 - fixtures
from workers.embedded.server import EmbeddedServer


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts of tests/support/agui and the packages that their lock file names."""
    folder = tmp_path_factory.mktemp("node")
    for file in AGUI.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(install, check=False, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def agents_dsn(
    request: pytest.FixtureRequest, server: EmbeddedServer, admin: psycopg.Connection, template: str
) -> Iterator[str]:
    """A database of the module's own."""
    name = request.module.__name__.rpartition(".")[2]
    with cloned(admin, template, name):
        yield dsn_of(server, name)
