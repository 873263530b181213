"""`hippocampus doctor` finds the faults of an installation, one at a time, and names the fix."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.support.plain_role import without_identity
from workers import doctor, settings
from workers.cli import main

Diagnose = Callable[..., tuple[int, dict[str, dict[str, str]]]]


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Diagnose:
    """Run the command; return its exit code, and its findings by check."""

    def call(dsn: str, **more: str) -> tuple[int, dict[str, dict[str, str]]]:
        monkeypatch.setenv("DATABASE_URL", dsn)
        monkeypatch.setenv("HIPPOCAMPUS_API_PORT", "0")
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        code = main.run(["doctor", "--json"])
        found: list[dict[str, str]] = json.loads(capsys.readouterr().out)
        return code, {each["check"]: each for each in found}

    return call


@pytest.fixture
def owner(dsn: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def fault(found: dict[str, dict[str, str]], check: str) -> tuple[str, str]:
    return found[check]["verdict"], found[check]["fix"]


def test_a_fresh_installation_lacks_only_its_roles(diagnose: Diagnose, dsn: str) -> None:
    """The suite's server runs without fsync, full_page_writes and autovacuum: each is found, and nothing else."""
    code, found = diagnose(dsn)
    assert code == 1
    wrong = {check for check, each in found.items() if each["verdict"] != "ok"}
    assert wrong == {"fsync", "full_page_writes", "autovacuum", "synchronous_commit", "roles"}
    assert all(each["fix"] for check, each in found.items() if check in wrong)
    assert not any(each["fix"] for check, each in found.items() if check not in wrong)
    expected = {"connection", "PostgreSQL", "pgvector", "clock", "schema", "permissions", "pools", "queues", "model"}
    assert expected <= set(found)


def test_an_unreachable_server_is_one_problem(diagnose: Diagnose) -> None:
    code, found = diagnose("postgresql://nobody@127.0.0.1:1/none")
    assert code == 1
    verdict, fix = fault(found, "connection")
    assert verdict == "problem"
    assert "127.0.0.1:1" in fix
    assert "PostgreSQL" not in found


def test_a_database_without_the_schema_names_the_command(diagnose: Diagnose, empty_dsn: str) -> None:
    code, found = diagnose(empty_dsn)
    assert code == 1
    assert fault(found, "pgvector")[0] == "problem"
    assert fault(found, "schema")[1].endswith("lacks all of this program's tables. Run `hippocampus migrate`.")
    assert "permissions" not in found


def test_a_server_that_keeps_its_identity_is_named(diagnose: Diagnose, dsn: str) -> None:
    """Whether another address leads to the same database is then not known; without another, nobody asks."""
    with without_identity(dsn) as theirs:
        _, found = diagnose(theirs, HIPPOCAMPUS_REPLICA_URL=theirs)
        assert found["pooler"]["verdict"] == "ok"
        _, both = diagnose(theirs, HIPPOCAMPUS_DIRECT_DATABASE_URL=theirs)
    for each in (found["replica"], both["pooler"]):
        assert each["verdict"] == "warning"
        assert "permission denied for function pg_control_system" in each["found"]
        assert "GRANT EXECUTE ON FUNCTION pg_control_system()" in each["fix"]


def test_the_sandbox_tests_itself(diagnose: Diagnose, dsn: str) -> None:
    """One that does not work is a problem: none replaces it. A token is shown by its beginning."""
    assert diagnose(dsn)[1]["sandbox"]["found"] == "monty, it works"
    broken = {"HIPPOCAMPUS_SANDBOX": "container:python:3.11-slim", "HIPPOCAMPUS_SANDBOX_ENGINE": "/nowhere/docker -H x"}
    found = diagnose(dsn, **broken)[1]["sandbox"]
    assert found["verdict"] == "problem"
    assert found["found"].startswith("container:python:3.11-slim by /nowhere/docker -H x: container does not work here")
    assert "docker cannot be started" in found["found"]
    assert "HIPPOCAMPUS_SANDBOX" in found["fix"]
    away = {"HIPPOCAMPUS_SANDBOX": "remote:https://127.0.0.1:1/run", "HIPPOCAMPUS_SANDBOX_TOKEN": "hush" * 6}
    found = diagnose(dsn, **away)[1]["sandbox"]
    assert found["verdict"] == "problem"
    assert found["found"].startswith("remote:https://127.0.0.1:1/run, token hushh***: remote does not work")


def test_a_setting_of_this_database_is_found(diagnose: Diagnose, dsn: str, owner: psycopg.Connection) -> None:
    owner.execute(f'ALTER DATABASE "{owner.info.dbname}" SET default_transaction_isolation = serializable')
    owner.execute(f'ALTER DATABASE "{owner.info.dbname}" SET default_transaction_read_only = on')
    _, found = diagnose(dsn)
    assert fault(found, "default_transaction_isolation")[0] == "problem"
    assert "primary" in fault(found, "default_transaction_read_only")[1]
    # What cannot be written for another reason is not called full.
    assert found["database disk"]["found"] == "not examined (ReadOnlySQLTransactionError)"


@pytest.mark.parametrize(
    ("setting", "value"), [("log_error_verbosity", "default"), ("log_parameter_max_length_on_error", "-1")]
)
def test_a_log_that_may_hold_what_users_said_is_a_warning(
    diagnose: Diagnose, dsn: str, owner: psycopg.Connection, setting: str, value: str
) -> None:
    """Rows of a failed statement, or its parameters: each setting by itself, with what to do."""
    assert setting not in diagnose(dsn)[1]
    owner.execute(f"ALTER DATABASE \"{owner.info.dbname}\" SET {setting} = '{value}'")
    _, found = diagnose(dsn)
    verdict, fix = fault(found, setting)
    assert verdict == "warning"
    assert value in found[setting]["found"]
    assert "what users said" in fix


def test_a_user_without_rights_gets_the_grant(diagnose: Diagnose, dsn: str, owner: psycopg.Connection) -> None:
    """The first tables that it may not read or write are named."""
    owner.execute("DROP ROLE IF EXISTS reader_only")
    owner.execute("CREATE ROLE reader_only LOGIN PASSWORD 'reader'")
    owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_only")
    owner.execute("GRANT INSERT, UPDATE, DELETE ON app_states TO reader_only")
    head, _, tail = dsn.removeprefix("postgresql://").partition("@")
    assert head
    code, found = diagnose(f"postgresql://reader_only:reader@{tail}")
    owner.execute("DROP OWNED BY reader_only")
    owner.execute("DROP ROLE reader_only")
    assert code == 1
    verdict, fix = fault(found, "permissions")
    assert verdict == "problem"
    assert fix.startswith("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public")
    assert "app_policies" in found["permissions"]["found"]
    assert "app_states" not in found["permissions"]["found"]


def test_a_port_that_another_program_holds_is_found(diagnose: Diagnose, dsn: str, owner: psycopg.Connection) -> None:
    """Unless a writer runs: then it is the writer's."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        _, found = diagnose(dsn, HIPPOCAMPUS_API_PORT=port)
        assert found["port"]["found"].startswith(f"{port} of 127.0.0.1 cannot be used (")
        assert fault(found, "port")[0] == "problem"
        assert "set HIPPOCAMPUS_API_PORT to another port" in fault(found, "port")[1]
        owner.execute("INSERT INTO metrics_targets (host, port, role, pid) VALUES ('h', 1, 'writer', 1)")
        assert "port" not in diagnose(dsn, HIPPOCAMPUS_API_PORT=port)[1]
    owner.execute("DELETE FROM metrics_targets")
    assert fault(diagnose(dsn, HIPPOCAMPUS_API_PORT=port)[1], "port") == ("ok", "")


def test_pools_that_exceed_the_servers_connections_are_found(
    diagnose: Diagnose, dsn: str, owner: psycopg.Connection
) -> None:
    """One of each role is counted before any runs, the live ones afterwards; the fix has numbers."""
    _, found = diagnose(dsn, HIPPOCAMPUS_DATABASE_POOL_SIZE="60")
    verdict, fix = fault(found, "pools")
    assert verdict == "problem"
    assert "one of each role may open 262" in found["pools"]["found"]
    assert "HIPPOCAMPUS_DATABASE_POOL_SIZE (now 60)" in fix
    owner.execute(
        "INSERT INTO metrics_targets (host, port, role, pid) VALUES ('h', 1, 'writer', 1), ('h', 2, 'writer', 2)"
    )
    _, found = diagnose(dsn, HIPPOCAMPUS_DATABASE_POOL_SIZE="60")
    assert found["pools"]["verdict"] == "ok"
    assert "the running roles may open 122" in found["pools"]["found"]
    assert fault(found, "roles") == (
        "warning", "start them with `hippocampus up`, or one by one as in the Procfile",
    )  # fmt: skip


def test_a_backlog_failed_jobs_and_an_idle_transaction_are_warnings(
    diagnose: Diagnose, dsn: str, owner: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.execute("SELECT create_session('app', 'ann', 's')")
    owner.execute("SELECT append_event('app', 'ann', 's', NULL, 'e', 'user', 'message', '{}', 'user', 'hi')")
    owner.execute("SELECT finalize_session('app', 'ann', 's')")
    owner.execute("UPDATE procrastinate_jobs SET status = 'failed' WHERE queue_name = 'deep_reflection'")
    owner.execute("UPDATE procrastinate_events SET at = now() - interval '1 hour'")
    owner.execute("INSERT INTO call_breakers (name, state, reason) VALUES ('m', 'open', 'timeout')")
    with psycopg.connect(dsn) as forgotten:
        forgotten.execute("SELECT 1")
        monkeypatch.setattr(doctor, "TRANSACTION_SECONDS_MAX", 0.0)
        code, found = diagnose(dsn)
    assert code == 1  # because of the settings of the suite's server
    assert found["failed jobs"]["found"] == "1"
    assert "hippocampus jobs --failed" in fault(found, "failed jobs")[1]
    assert found["queues"]["found"].startswith("the oldest job has waited for 36")
    assert found["model"]["found"] == "not called now: m (timeout)"
    assert fault(found, "transactions")[0] == "warning"


def test_every_connection_of_a_process_is_counted() -> None:
    """A worker also has the queue's own driver, its lock, its listener and a poll; a writer its listener."""
    config = settings.Settings(database_pool_size=7, queue_pool_size=3)
    assert doctor.connections_of("writer", config) == 8
    assert doctor.connections_of("fast_replay", config) == 13
