"""Every deployment file passes its own linter, and names what the program has: roles, settings, ports, metrics."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repo.test_deploy import procfile
from tests.support.paths import ROOT
from workers.pools import POOLS
from workers.settings import Settings, variables_of

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
UNITS = sorted((DEPLOY / "systemd").iterdir())
TOOLS = Path(sys.executable).parent
#: The exposure by systemd-analyze security, from 0 for the least to 100.
EXPOSURE_MAX = 20


def lint(*command: str, **variables: str) -> str:
    """Run a linter; return what it says of a file that it accepts."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def kustomization() -> dict[str, Any]:
    return dict(yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text()))


def resources() -> Iterator[dict[str, Any]]:
    for name in kustomization()["resources"]:
        yield from yaml.safe_load_all((KUBERNETES / name).read_text())


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in resources() if each["kind"] == kind}


@pytest.mark.system
def test_the_dockerfile_passes_hadolint() -> None:
    assert not lint(str(TOOLS / "hadolint"), str(DEPLOY / "Dockerfile"))
    text = (DEPLOY / "Dockerfile").read_text()
    _, final = text.rsplit("\nFROM ", 1)
    assert "\nUSER 10001:10001\n" in final
    assert "pip install" not in final


@pytest.mark.system
def test_compose_fits_its_schema() -> None:
    lint(str(TOOLS / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml"))


@pytest.mark.system
def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    files = [str(KUBERNETES / name) for name in kustomization()["resources"]]
    said = lint(str(TOOLS / "kubernetes-validate"), "--strict", *files)
    assert said.count(" passed for resource ") == len(list(resources()))
    beside = {"kustomization.yaml", "prometheus-adapter.yaml"}
    assert {each.name for each in KUBERNETES.iterdir()} == beside | set(kustomization()["resources"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_the_base_is_built_by_kustomize(tmp_path: Path) -> None:
    """It builds without a cluster, and the overlay's image replaces each of ours."""
    built = list(yaml.safe_load_all(lint("kubectl", "kustomize", str(KUBERNETES), KUBECONFIG=os.devnull)))
    assert len(built) == len(list(resources()))
    images = {
        container["image"]
        for each in built
        if "template" in each.get("spec", {})
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"registry.example/hippocampus:0.1.0"}


def test_each_role_is_a_deployment_with_its_command_ports_and_budget() -> None:
    """The deployments are the Procfile's roles; each may be drained, and is restarted only if it hangs itself."""
    deployments, budgets = of_kind("Deployment"), of_kind("PodDisruptionBudget")
    assert deployments.keys() == budgets.keys()
    found = {}
    known = {name for field in Settings.model_fields for name in variables_of(field)}
    for each in deployments.values():
        pod = each["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        role = container["args"][-1]
        found[role] = ["hippocampus", *container["args"]]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["metrics"] == Settings.model_fields[f"{role}_metrics_port"].default
        assert ports.get("http") == (Settings.model_fields["api_port"].default if role == "writer" else None)
        assert container["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": "metrics"}
        labels = pod["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"] == labels
        assert budgets[each["metadata"]["name"]]["spec"]["selector"]["matchLabels"] == labels
        grace = float(of_kind("ConfigMap")["hippocampus"]["data"]["HIPPOCAMPUS_SHUTDOWN_GRACE_SECONDS"])
        assert pod["spec"]["terminationGracePeriodSeconds"] > grace + 5
    assert found == procfile()
    assert of_kind("ConfigMap")["hippocampus"]["data"].keys() <= known
    (service,) = of_kind("Service").values()
    assert service["spec"]["selector"] == deployments["hippocampus-writer"]["spec"]["template"]["metadata"]["labels"]


def test_the_autoscalers_use_the_metric_of_their_queue() -> None:
    """A deployment that is scaled names no replicas, or each deployment would reset them."""
    deployments = of_kind("Deployment")
    adapter = yaml.safe_load((KUBERNETES / "prometheus-adapter.yaml").read_text())
    (rule,) = adapter["rules"]["external"]
    scalers = of_kind("HorizontalPodAutoscaler").values()
    assert len(scalers) == 2
    for each in scalers:
        target = deployments[each["spec"]["scaleTargetRef"]["name"]]
        assert "replicas" not in target["spec"]
        pool = target["spec"]["template"]["spec"]["containers"][0]["args"][-1]
        (metric,) = each["spec"]["metrics"]
        assert metric["external"]["metric"]["name"] == rule["name"]["as"]
        labels = metric["external"]["metric"]["selector"]["matchLabels"]
        assert labels == {"queue": pool, "status": "todo"}
        assert POOLS[pool].queues == (pool,)


@pytest.mark.system
def test_the_units_pass_systemd_analyze(tmp_path: Path) -> None:
    """systemd accepts each unit, each role has one, and none is exposed more than it must be."""
    for unit in UNITS:
        text = unit.read_text().replace("/opt/hippocampus/bin/hippocampus", str(TOOLS / "hippocampus"))
        (tmp_path / unit.name).write_text(text)
    paths = [str(tmp_path / unit.name) for unit in UNITS]
    assert not lint("systemd-analyze", "verify", "--man=no", "--recursive-errors=one", *paths)
    services = [path for path in paths if path.endswith(".service")]
    lint("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", *services)
    wanted = [line.partition("=")[2] for line in (DEPLOY / "systemd" / "hippocampus.target").read_text().splitlines()]
    roles = ["hippocampus-writer.service", *(f"hippocampus-worker@{pool}.service" for pool in POOLS)]
    assert [each for each in wanted if each.endswith(".service")] == roles
