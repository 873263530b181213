"""Deployment files name what exists: the same roles in the Procfile and in compose, and real commands."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hippocampus.providers import registry
from tests.support.paths import ROOT
from workers.embedded.data import initial_settings
from workers.settings import Settings, variables_of

DEPLOY = ROOT / "deploy"


def procfile() -> dict[str, list[str]]:
    lines = (ROOT / "Procfile").read_text().splitlines()
    return {role: shlex.split(command) for role, _, command in (line.partition(": ") for line in lines)}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def test_the_procfile_has_one_process_per_role() -> None:
    assert procfile() == {
        "writer": ["hippocampus", "writer"],
        "fast_replay": ["hippocampus", "worker", "fast_replay"],
        "deep_reflection": ["hippocampus", "worker", "deep_reflection"],
        "retention": ["hippocampus", "worker", "retention"],
        "pulse": ["hippocampus", "worker", "pulse"],
    }


def test_compose_runs_every_role_of_the_procfile(compose: dict[str, Any]) -> None:
    """Each role is a service with the same command, and starts after the migration."""
    for role, command in procfile().items():
        service = compose["services"][role]
        assert ["hippocampus", *service["command"]] == command
        assert service["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert compose["services"]["migrate"]["command"] == ["migrate"]
    assert compose["services"]["migrate"]["restart"] == "no"


def test_every_role_of_compose_is_asked_for_its_health(compose: dict[str, Any]) -> None:
    """The writer at its API, each worker at the port of its own metrics."""
    config = Settings()
    for role in procfile():
        port, path = (config.api_port, "health") if role == "writer" else (config.metrics_port(role), "metrics")
        check = compose["services"][role]["healthcheck"]["test"]
        assert f"'http://127.0.0.1:{port}/{path}'" in check[-1], role


def test_the_image_exposes_the_ports_of_every_role() -> None:
    """The API's and those of the metrics, as the settings have them."""
    config = Settings()
    exposed = re.search(r"^EXPOSE (.+)$", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert exposed is not None
    assert set(map(int, exposed[1].split())) == {config.api_port, *map(config.metrics_port, procfile())}


def test_compose_sets_only_settings_that_exist(compose: dict[str, Any]) -> None:
    """Every variable that a container receives is one that the program reads."""
    known = {name for field in Settings.model_fields for name in variables_of(field)}
    known |= {name for provider in registry.PROVIDERS.values() for name in provider.key_variables}
    for role in procfile():
        assert set(compose["services"][role]["environment"]) <= known


def test_compose_publishes_on_loopback_only(compose: dict[str, Any]) -> None:
    """Opening a port to the network is the operator's decision."""
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_postgresql_of_compose_logs_no_rows(compose: dict[str, Any]) -> None:
    """The detail of an error quotes the row, and so what users said."""
    program, *options = compose["services"]["postgres"]["command"]
    assert program == "postgres"
    assert options[::2] == ["-c"] * (len(options) // 2)
    assert "log_error_verbosity=terse" in options[1::2]


def test_postgresql_of_compose_reads_as_the_embedded_one_does(compose: dict[str, Any]) -> None:
    """Pages that the kernel has are read faster by the server's own process than by another."""
    io_method = initial_settings(int(compose["services"]["postgres"]["image"].rpartition("pg")[2]))["io_method"]
    assert f"io_method={io_method}" in compose["services"]["postgres"]["command"]


def test_every_mounted_file_and_secret_exists(compose: dict[str, Any]) -> None:
    prometheus = compose["services"]["prometheus"]
    files = [each.split(":")[0] for each in prometheus["volumes"] if each.startswith("./")]
    assert files
    assert all((DEPLOY / each).is_file() for each in files)
    assert set(prometheus["secrets"]) <= set(compose["secrets"])


def test_prometheus_discovers_targets_at_the_writer(compose: dict[str, Any]) -> None:
    """Service discovery points at the writer's service and port, and the rule file is the one beside it."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (discovery,) = job["http_sd_configs"]
    assert discovery["url"] == f"http://writer:{Settings.model_fields['api_port'].default}/metrics/targets"
    assert (
        discovery["authorization"]["credentials_file"]
        == "/run/secrets/" + compose["services"]["prometheus"]["secrets"][0]
    )
    assert all((DEPLOY / name).is_file() for name in config["rule_files"])


def test_the_image_is_built_from_files_that_exist() -> None:
    """Every file that the Dockerfile copies is in the repository."""
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            assert all((ROOT / name).exists() for name in line.split()[1:-1]), line


@pytest.mark.system
@pytest.mark.skipif(importlib.util.find_spec("workers.__main__") is None, reason="the command line is not installed")
@pytest.mark.parametrize("command", [*(each[1:] for each in procfile().values()), ["migrate"]], ids=" ".join)
def test_every_command_exists(command: list[str]) -> None:
    """The program has each command that is deployed, and help for it."""
    done = subprocess.run(
        [sys.executable, "-m", "workers", *command, "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.system
def test_the_wheel_contains_the_migrations(built: tuple[Path, str], tmp_path: Path) -> None:
    """A wheel built here contains the schema, the statement files and the sample, and finds them once installed."""
    (wheel,) = built[0].glob("*.whl")
    installed = tmp_path / "installed"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(installed),
        str(wheel),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    script = (
        "from importlib import resources\n"
        "from workers.intake.samples import sample_path\n"
        "from workers.migrate import default_folder, read_schema\n"
        "assert (resources.files('workers.migrate') / 'catalogue.sql').is_file()\n"
        "assert (resources.files('workers.cli') / 'queries.sql').is_file()\n"
        "assert sample_path().parent.name == '_examples', sample_path()\n"
        "ours = read_schema(default_folder())\n"
        "print(default_folder(), *(each.name for each in (*ours.migrations, *ours.functions)))"
    )
    ask = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(installed)!r})\n{script}"]
    folder, *names = subprocess.run(ask, check=True, capture_output=True, text=True, cwd="/").stdout.split()
    assert folder == str(installed / "hippocampus" / "_schema")
    halves = (ROOT / "schema" / "migrations").glob("*.sql"), (ROOT / "schema").glob("functions/*.sql")
    assert names == [*sorted(path.name for path in halves[0]), *sorted(f"functions/{path.name}" for path in halves[1])]


def test_ci_runs_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    called = re.findall(r"^make ([a-z-]+)$", (ROOT / ".ci" / "run").read_text(), re.M)
    assert called == ["check", "test", "test-system"]
    assert {"demo", "run", "bench", *called} <= targets
