"""What an installation needs for a number of daily users: a model of queues, fed with measured service times.

    python -m benchmarks.capacity              print the table of docs/scaling.md
    python -m benchmarks.capacity --write      put it into docs/scaling.md
    python -m benchmarks.capacity --measure    measure the service times on this machine, and print them

Each resource is a queue with several servers, random arrivals and exponential service times (M/M/c, Erlang's C): cores
of PostgreSQL, cores of the writers, slots of the workers. It gets as many servers as keep the wait of 99 of 100
requests in the busiest hour below a bound, and is not used beyond a share that leaves room for a failure. The times are
seconds of CPU, in the server's processes and in the client's, which other load on the machine changes little; the
network and the disk are not in them.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import options

DOC = Path(__file__).parent.parent / "docs" / "scaling.md"
BEGIN, END = "<!-- begin of the table of benchmarks.capacity -->", "<!-- end -->"
USERS = (1_000, 100_000, 10_000_000)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of CPU of one operation, in PostgreSQL and in the process that asks for it."""

    database: float
    client: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured service times, and bytes.

    Attributes:
        job: a consolidation job, without the model's own time.
        event_bytes: of an event with its message and their indexes, without a vector.
    """

    append: Times
    context: Times
    search: Times
    job: Times
    event_bytes: int


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a user does in a day, and how unevenly: assumptions, to be replaced by yours."""

    turns: float = 10.0
    events_per_turn: float = 3.0  # a question, a call of a tool, an answer
    contexts_per_turn: float = 1.0
    searches_per_turn: float = 0.2
    jobs_per_turn: float = 0.25
    model_seconds_per_job: float = 3.0
    busiest_hour: float = 0.12  # its share of the day
    embedded_bytes: int = 9_300  # of a vector of 1,536 numbers, and its copy in half precision


@dataclass(frozen=True, slots=True)
class Machine:
    """What one cell has, and how far it is used."""

    cores: int = 16
    share: float = 0.6  # of the cores, in the busiest hour: room for upkeep, backups and a failed standby
    wait_seconds: float = 0.02  # that 99 of 100 operations wait for a core at most
    job_wait_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Need:
    """What a number of daily users needs."""

    users: int
    appends: float  # a second, in the busiest hour
    database_cores: int
    cells: int
    writer_cores: int
    worker_slots: int
    model_calls: float  # a second
    gigabytes_a_year: float


def waiting_share(servers: int, load: float) -> float:
    """Return Erlang's C: the share of requests that wait; `load` is arrivals times service time, below `servers`."""
    if load <= 0:
        return 0.0
    blocked = 1.0  # Erlang's B, by its recurrence
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def wait_quantile(servers: int, rate: float, seconds: float, quantile: float) -> float:
    """Return the wait that this share of the requests does not exceed; infinite where the servers do not suffice."""
    load = rate * seconds
    if load >= servers:
        return math.inf
    waiting = waiting_share(servers, load)
    if waiting <= 1 - quantile:
        return 0.0
    return math.log(waiting / (1 - quantile)) * seconds / (servers - load)


def servers_for(rate: float, seconds: float, wait_seconds: float, share: float, quantile: float = 0.99) -> int:
    """Return the fewest servers of which only a share is used and whose queue is short enough."""
    servers = max(1, math.ceil(rate * seconds / share))
    while wait_quantile(servers, rate, seconds, quantile) > wait_seconds:
        servers += 1
    return servers


def need(users: int, costs: Costs, behaviour: Behaviour = Behaviour(), machine: Machine = Machine()) -> Need:
    """Return what a number of daily users needs."""
    turns = users * behaviour.turns * behaviour.busiest_hour / 3600
    rates = {
        "append": turns * behaviour.events_per_turn,
        "context": turns * behaviour.contexts_per_turn,
        "search": turns * behaviour.searches_per_turn,
        "job": turns * behaviour.jobs_per_turn,
    }
    times: dict[str, Times] = {name: getattr(costs, name) for name in rates}

    def cores(names: tuple[str, ...], side: str) -> int:
        busy = sum(rates[name] * getattr(times[name], side) for name in names)
        rate = sum(rates[name] for name in names)
        return servers_for(rate, busy / rate, machine.wait_seconds, machine.share)

    database = cores(tuple(rates), "database")
    slot_seconds = behaviour.model_seconds_per_job + times["job"].client
    events = users * behaviour.turns * behaviour.events_per_turn * 365
    return Need(
        users=users,
        appends=rates["append"],
        database_cores=database,
        cells=math.ceil(database / machine.cores),
        writer_cores=cores(("append", "context", "search"), "client"),
        worker_slots=servers_for(rates["job"], slot_seconds, machine.job_wait_seconds, machine.share),
        model_calls=2 * rates["job"],
        gigabytes_a_year=events * (costs.event_bytes + behaviour.embedded_bytes * 2 / behaviour.events_per_turn) / 1e9,
    )


#: As `--measure` printed on two shared cores of a virtual machine with PostgreSQL 18: users of 250 messages, vectors of
#: `local`; the bytes are of `benchmarks.growth`.
MEASURED = Costs(
    append=Times(database=0.000967, client=0.000567),
    context=Times(database=0.012333, client=0.0086),
    search=Times(database=0.008467, client=0.0017),
    job=Times(database=0.0035, client=0.00325),
    event_bytes=730,
)


def table(costs: Costs = MEASURED) -> str:
    """Return the table of docs/scaling.md."""
    lines = [
        "| daily users | appends a second, busiest hour | cores of PostgreSQL | cells of 16 cores | cores of writers |"
        " slots of workers | calls of the model a second | stored a year |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for users in USERS:
        found = need(users, costs)
        lines.append(
            f"| {users:,} | {found.appends:,.1f} | {found.database_cores:,} | {found.cells:,} |"
            f" {found.writer_cores:,} | {found.worker_slots:,} | {found.model_calls:,.2f} |"
            f" {_size(found.gigabytes_a_year)} |"
        )
    return "\n".join(lines)


def _size(gigabytes: float) -> str:
    return f"{gigabytes:,.0f} GB" if gigabytes < 1000 else f"{gigabytes / 1000:,.0f} TB"


def write(text: str) -> str:
    """Return a page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


async def measure() -> None:
    """Print the CPU time of each operation, in PostgreSQL and in the client."""
    from benchmarks.growth import SESSIONS_PER_USER, fill
    from benchmarks.real_workers import drained, enqueue, gemini, talk, workers
    from benchmarks.server import fresh_server
    from hippocampus.context_assembler import ContextAssembler
    from hippocampus.providers.local.embedding import LocalEmbedder
    from hippocampus.search import MemorySearch
    from pulse import database
    from pulse.events import Event
    from pulse.session_service import OpenSessionService

    sessions, count = 400, 300
    async with (
        fresh_server() as server,
        await database.create_pool(server.tcp_dsn, min_size=1, max_size=4) as pool,
    ):
        await fill(pool, 0, sessions)
        service, embedder = OpenSessionService(pool), LocalEmbedder()
        search, assembler = MemorySearch(pool, embedder), ContextAssembler(pool, embedder)

        async def append(number: int) -> None:
            owner = f"u{number % sessions // SESSIONS_PER_USER}"
            event = Event(author="user", content={"text": "We met at the market once more."})
            await service.append("bench", owner, f"s{number % sessions}", [event])

        async def context(number: int) -> None:
            owner = f"u{number % sessions // SESSIONS_PER_USER}"
            await assembler.assemble(
                app_name="bench", user_id=owner, session_id=f"s{number % sessions}", query="the violin", max_tokens=4000
            )

        async def find(number: int) -> None:
            owner = f"u{number % sessions // SESSIONS_PER_USER}"
            await search.search(app_name="bench", user_id=owner, query="who kept the violin in the kitchen?")

        await pool.execute("UPDATE app_policies SET consolidate = false")
        for name, work in (("append", append), ("context", context), ("search", find)):
            print(name, await _cpu(server.pid, os.getpid(), count, work))
        await service.close()
        threads = await talk(pool, 120, "job")
        with gemini(0.0) as model:
            async with workers(1, server.tcp_dsn, model.url, concurrency=4) as running:

                async def jobs(_: int) -> None:
                    await enqueue(pool, threads)
                    await drained(pool)

                found = await _cpu(server.pid, running[0].pid, 1, jobs)
                each = Times(round(found.database / len(threads), 6), round(found.client / len(threads), 6))
                print("job", each)


async def _cpu(server_pid: int, client_pid: int, count: int, work: Callable[[int], Awaitable[None]]) -> Times:
    """Return the CPU time of a call in the server's processes and in the client."""
    await work(0)
    before, own = _cpu_seconds(server_pid, children=True), _cpu_seconds(client_pid)
    for number in range(count):
        await work(number + 1)
    after = _cpu_seconds(server_pid, children=True)
    return Times(round((after - before) / count, 6), round((_cpu_seconds(client_pid) - own) / count, 6))


def _cpu_seconds(pid: int, *, children: bool = False) -> float:
    """Return the CPU time of a process, or of its running children together."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0
    for entry in Path("/proc").iterdir() if children else [Path(f"/proc/{pid}")]:
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if not children or int(fields[1]) == pid:
            total += int(fields[11]) + int(fields[12])
    return total / ticks


def main() -> None:
    parser = options.parser()
    parser.add_argument("--write", action="store_true", help="put the table into docs/scaling.md")
    parser.add_argument("--measure", action="store_true", help="measure the service times on this machine")
    arguments = parser.parse_args()
    if arguments.measure:
        asyncio.run(measure())
    elif arguments.write:
        DOC.write_text(write(DOC.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main()
