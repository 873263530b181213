"""Providers that another distribution installs: what its models make, and its faults, in real processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support import real_worker
from tests.support.cli_process import command
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until

NAMES = ("acme", "absent", "unmade", "raises", "half", "writer", "other")
FILES = {
    "acme_memory-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme-memory\nVersion: 1.2\n",
    "acme_memory-1.2.dist-info/entry_points.txt": "[hippocampus.providers]\n"
    + "".join(f"{name} = acme_memory:{name.upper()}\n" for name in NAMES)
    + "gone = acme_lost:GONE\n",
    "acme_memory.py": """
from hippocampus import Provider

both = {"generation_model": "acme-1", "embedding_model": "acme-flat"}
ACME = Provider(module="acme_models", **both)
ABSENT = Provider(module="acme_absent", **both)
RAISES = Provider(module="acme_raises", **both)
HALF = Provider(module="acme_memory", **both)
WRITER = Provider(module="acme_models", generation_model="acme-1", embedding_model="")
OTHER = {"not": "a provider"}
""",
    "acme_raises.py": "raise RuntimeError('acme is closed')",
    "acme_models.py": """
import dataclasses
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator


class AcmeGenerator(LocalGenerator):
    name = "acme"
    fingerprint = "acme"

    def __init__(self, model):
        self.model = model

    async def summarize(self, slices):
        return [
            dataclasses.replace(each, origin=dataclasses.replace(each.origin, provider="acme", model=self.model))
            for each in await super().summarize(slices)
        ]


class AcmeEmbedder(LocalEmbedder):
    model = "acme-flat"


def make_generator(config):
    if config.model == "unknown":
        raise KeyError("acme has no such model")
    return AcmeGenerator(config.model)


def make_embedder(config):
    return AcmeEmbedder()
""",
}


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which the distribution is installed."""
    for name, text in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}", "HIPPOCAMPUS_HOME": str(tmp_path)}


async def test_a_worker_stores_what_its_models_make(
    pool: asyncpg.Pool, dsn: str, installed: dict[str, str], tmp_path: Path
) -> None:
    await real_worker.say(pool)
    environment = {
        **installed,
        "DATABASE_URL": dsn,
        "HIPPOCAMPUS_GENERATOR": "acme:acme-2",
        "HIPPOCAMPUS_EMBEDDER": "acme",
    }
    log = tmp_path / "log"
    with log.open("wb") as out:
        worker = subprocess.Popen(command("worker", "fast_replay"), env=environment, stdout=out, stderr=out)

    async def stored() -> Any:
        assert worker.poll() is None, log.read_text()
        return await pool.fetchrow(
            "SELECT m.model, v.model AS embedded_by FROM memories AS m JOIN memory_vectors AS v USING (id)"
        )

    try:
        assert tuple(await until(stored)) == ("acme-2", "acme-flat")
        models = "SELECT array_agg(DISTINCT model) FROM message_vectors HAVING count(*) = $1"
        assert await until(lambda: pool.fetchval(models, len(real_worker.SAID))) == ["acme-flat"]
    finally:
        worker.terminate()
        await asyncio.to_thread(worker.wait)


@pytest.mark.system
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("GENERATOR", "acme", ""),
        ("EMBEDDER", "acme", ""),
        (
            "GENERATOR",
            "gone",
            "HIPPOCAMPUS_GENERATOR is wrong: the provider 'gone' of acme-memory 1.2 cannot be loaded: acme_lost:GONE:"
            " ModuleNotFoundError: No module named 'acme_lost'",
        ),
        (
            "EMBEDDER",
            "unmade",
            "HIPPOCAMPUS_EMBEDDER is wrong: the provider 'unmade' of acme-memory 1.2 cannot be loaded:"
            " acme_memory:UNMADE: AttributeError: module 'acme_memory' has no attribute 'UNMADE'",
        ),
        (
            "GENERATOR",
            "other",
            "HIPPOCAMPUS_GENERATOR is wrong: the provider 'other' of acme-memory 1.2 cannot be used: acme_memory:OTHER"
            " is not a hippocampus.Provider, but {'not': 'a provider'}",
        ),
        (
            "EMBEDDER",
            "writer:x",
            "HIPPOCAMPUS_EMBEDDER is writer, which has no embedder of its own: choose another embedder",
        ),
        (
            "EMBEDDER",
            "absent",
            "HIPPOCAMPUS_EMBEDDER is absent:acme-flat: acme_absent cannot be imported: No module named 'acme_absent'",
        ),
        (
            "GENERATOR",
            "raises",
            "HIPPOCAMPUS_GENERATOR is raises:acme-1: acme_raises cannot be imported: RuntimeError: acme is closed",
        ),
        ("EMBEDDER", "half", "HIPPOCAMPUS_EMBEDDER is half:acme-flat: AttributeError: module 'acme_memory' has no"),
        (
            "GENERATOR",
            "acme:unknown",
            "HIPPOCAMPUS_GENERATOR is acme:unknown: KeyError: 'acme has no such model'",
        ),
    ],
)
def test_doctor_names_its_model_or_its_fault(installed: dict[str, str], variable: str, value: str, said: str) -> None:
    """By the setting, the distribution and the object: never by a traceback."""
    environment = {
        **installed,
        f"HIPPOCAMPUS_{variable}": value,
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "HIPPOCAMPUS_API_PORT": "0",
    }
    done = subprocess.run(
        command("doctor"), env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    if said:
        assert said in output
    else:
        assert f"ok\t{variable.lower()}\tacme:acme-" in output
