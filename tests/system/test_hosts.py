"""Workers on several hosts: network namespaces with links of their own, one PostgreSQL, a model that takes 200 ms."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from benchmarks.real_workers import drained, enqueue, talk
from pulse import database
from tests.conftest import FAST_SETTINGS
from tests.support.fake_gemini import FakeGemini
from tests.support.pace import at_this_pace, slowdown
from tests.support.paths import ROOT
from tests.support.waiting import until
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate

pytestmark = pytest.mark.system

NETWORK = "10.213"
HOSTS_MAX = 8
MODEL_SECONDS = 0.2
CALLS_PER_JOB = 2
JOBS_PER_HOST = 10
#: A host that is cut off is known to be dead by its heartbeat, after 30 s; the server still sees its connections.
RESCUE_SECONDS_MAX = 60.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Host:
    """A network namespace whose only way out is a link to this machine."""

    def __init__(self, number: int, dsn: str, model_port: int, folder: Path) -> None:
        self.name, self._link = f"hippo{number}", f"hippov{number}"
        self._gateway = f"{NETWORK}.{number}.1"
        self._address = f"{NETWORK}.{number}.2"
        self._log = folder / f"{self.name}.log"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HIPPOCAMPUS_")},
            "DATABASE_URL": dsn.replace("127.0.0.1", self._gateway),
            "GOOGLE_API_KEY": "AIza-not-a-key-0123456789",
            "HIPPOCAMPUS_PROVIDER_BASE_URL": f"http://{self._gateway}:{model_port}",
            "HIPPOCAMPUS_FAST_REPLAY_CONCURRENCY": "1",
            "HIPPOCAMPUS_DATABASE_POOL_SIZE": "3",
            "HIPPOCAMPUS_GENERATE_TIMEOUT_SECONDS": "5",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Host:
        ip("netns", "add", self.name)
        ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("address", "add", f"{self._gateway}/24", "dev", self._link)
        ip("-n", self.name, "address", "add", f"{self._address}/24", "dev", "eth0")
        for words in (["-n", self.name, "link", "set", "lo", "up"], ["-n", self.name, "link", "set", "eth0", "up"]):
            ip(*words)
        ip("link", "set", self._link, "up")
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        ip("netns", "delete", self.name)

    def cut(self) -> None:
        """Take the link down: packets vanish in both directions, and nobody is told."""
        ip("link", "set", self._link, "down")

    def restore(self) -> None:
        ip("link", "set", self._link, "up")

    def start(self) -> None:
        command = ["ip", "netns", "exec", self.name, sys.executable, "-m", "workers.worker", "fast_replay"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)

    def jobs_done(self) -> int:
        return self._log.read_text().count('"job_succeeded"')

    def worker_ids(self) -> list[int]:
        """The ids under which its worker has registered, the newest last."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line)["worker_id"] for line in lines if '"worker_registered"' in line]


@pytest.fixture
def listening(home: Path) -> Iterator[EmbeddedServer]:
    """A server that the namespaces reach."""
    home.parent.mkdir(exist_ok=True)
    rules = home.parent / "hosts_hba.conf"
    rules.write_text(
        f"local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n"
        f"host all all {NETWORK}.0.0/16 scram-sha-256\n"
    )
    rules.chmod(0o644)
    settings = {**FAST_SETTINGS, "listen_addresses": "*", "hba_file": str(rules)}
    with EmbeddedServer(home, settings=settings) as server:
        asyncio.run(migrate(server.dsn))
        yield server


@pytest.fixture
def namespaces() -> None:
    """Skip where the kernel or the container does not allow network namespaces."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    tried = subprocess.run(["ip", "netns", "add", "hippotry"], check=False, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"network namespaces are not permitted here: {tried.stderr.strip()}")
    ip("netns", "delete", "hippotry")


@contextlib.asynccontextmanager
async def model_for_hosts() -> AsyncIterator[int]:
    model = FakeGemini(latency_seconds=MODEL_SECONDS)
    await model.start(0, "0.0.0.0")
    try:
        yield int(model.base_url.rpartition(":")[2])
    finally:
        await model.stop()


@pytest.mark.timing
def test_more_hosts_do_more_and_one_that_is_cut_off_loses_and_doubles_nothing(
    namespaces: None, listening: EmbeddedServer, tmp_path: Path
) -> None:
    asyncio.run(scenario(listening.tcp_dsn, tmp_path))


async def scenario(dsn: str, folder: Path) -> None:
    async with model_for_hosts() as port, await database.create_pool(dsn, min_size=1, max_size=4) as pool:
        with contextlib.ExitStack() as stack:
            hosts: list[Host] = []
            rates: dict[int, float] = {}
            for count in (1, 2, 4, HOSTS_MAX):
                while len(hosts) < count:
                    hosts.append(stack.enter_context(Host(len(hosts) + 1, dsn, port, folder)))
                    hosts[-1].start()
                await until(lambda: all(host.worker_ids() for host in hosts), "every worker has registered")
                threads = await talk(pool, JOBS_PER_HOST * count, f"scale{count}")
                began = time.perf_counter()
                await enqueue(pool, threads)
                await drained(pool)
                rates[count] = len(threads) / (time.perf_counter() - began)
            print({count: round(rate, 2) for count, rate in rates.items()})
            best = 1 / (MODEL_SECONDS * CALLS_PER_JOB)
            for count, rate in rates.items():
                assert rate <= best * count * 1.1, "the model was the bottleneck"
                assert rate >= 0.7 * count * rates[1] / slowdown(), rates

            await cut_off(pool, hosts)
            await require_each_once(pool)


async def cut_off(pool: asyncpg.Pool, hosts: list[Host]) -> None:
    """Cut a host off in the middle of its job, until the others have done everything; then let it come back."""
    threads = await talk(pool, 12 * len(hosts), "cut")
    await enqueue(pool, threads)
    victim = hosts[0]
    former = victim.worker_ids()[-1]

    async def is_working() -> bool:
        doing = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE worker_id = $1 AND status = 'doing')"
        return bool(await pool.fetchval(doing, former))

    await until(is_working, "the host has a job")
    victim.cut()
    began = time.perf_counter()
    await until(lambda: is_drained(pool), "the others take over", seconds=at_this_pace(RESCUE_SECONDS_MAX))
    print("taken over after", round(time.perf_counter() - began, 1))
    attempts = await pool.fetchval("SELECT max(c.attempts) FROM consolidation_jobs AS c")
    assert attempts == 2, "the job of the host was done again, by another"

    done = victim.jobs_done()
    victim.restore()
    restored = time.perf_counter()

    async def is_back() -> bool:
        await enqueue(pool, await talk(pool, len(hosts), f"back{time.monotonic_ns()}"))
        await drained(pool)
        return victim.jobs_done() > done

    await until(is_back, "the host works again by itself", seconds=at_this_pace(RESCUE_SECONDS_MAX))
    print("back after", round(time.perf_counter() - restored, 1))


async def is_drained(pool: asyncpg.Pool) -> bool:
    return not await pool.fetchval("SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))")


async def require_each_once(pool: asyncpg.Pool) -> None:
    """Every session is consolidated, once."""
    assert await pool.fetchval("SELECT count(*) FROM threads WHERE fast_upto_seq <> last_seq") == 0
    statuses = await pool.fetch("SELECT status, count(*) FROM consolidation_jobs GROUP BY 1")
    assert [row["status"] for row in statuses] == ["completed"]
    doubled = await pool.fetch("SELECT thread_id, memory_type FROM memories GROUP BY 1, 2 HAVING count(*) <> 1")
    assert not doubled
    sessions = await pool.fetchval("SELECT count(*) FROM threads")
    assert await pool.fetchval("SELECT count(*) FROM memories") == 2 * sessions
