"""What each figure must reach and aims at, and how a benchmark reports it.

A benchmark calls `figure(name, value)`; it prints the value with its must and aim, and keeps it for `make bench`, which
writes all of them as JSON and ends with an error where a must is missed, or a figure is not reported by any benchmark.
A must that an earlier run of the same machine cannot reach is not lowered here: it is a finding.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

#: Where a benchmark that `make bench` started appends its figures, one JSON object a line.
FILE_VARIABLE = "BENCH_FIGURES"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a figure must reach.

    Attributes:
        more: more is better.
        of_file: it is of a LoCoMo file.
        by_hand: `make bench` does not measure it.
    """

    what: str
    unit: str
    must: float
    aim: float | None = None
    more: bool = False
    of_file: bool = False
    by_hand: bool = False

    def is_met(self, value: float) -> bool:
        """Whether a value reaches the must."""
        return value >= self.must if self.more else value <= self.must

    def worst(self, values: Iterable[float]) -> float:
        """Return the value that is the farthest from the aim."""
        return min(values) if self.more else max(values)

    @property
    def text(self) -> str:
        """As it is printed beside a value."""
        aim = "" if self.aim is None else f", aim {self.aim:g}{self.unit}"
        return f"must {'≥' if self.more else '≤'} {self.must:g}{self.unit}{aim}"


#: Latencies and ratios on one machine with both peers on the same server, its own commit latency printed beside.
FIGURES: Mapping[str, Wanted] = MappingProxyType(
    {
        "append_vs_adk": Wanted("append_event with a delta, against DatabaseSessionService", "x", 5, 7, more=True),
        "append_vs_sql": Wanted("append_event, against hand-written SQL of the same rows", "", 0.85, 1.0, more=True),
        "adk_append_one": Wanted("ADK adapter: append, 1 session", "x", 5, 6, more=True),
        "adk_append_ten": Wanted("ADK adapter: append, 10 sessions", "x", 5, 6.5, more=True),
        "adk_create_one": Wanted("ADK adapter: create, 1 session", "x", 5, 6, more=True),
        "adk_create_ten": Wanted("ADK adapter: create, 10 sessions", "x", 6, 8, more=True),
        "adk_get_recent": Wanted("ADK adapter: get the newest 50 of 3,000 events", "x", 3.5, 5, more=True),
        "adk_get_at_once": Wanted("ADK adapter: the same, 10 callers", "x", 4, more=True),
        "adk_list": Wanted("ADK adapter: list 10,000 sessions", "x", 4.5, 6, more=True),
        "notify_p99": Wanted("commit to subscriber at 100 msg/s, p99", " ms", 15, 5),
        "frame_p99": Wanted("append to SSE frame at 100/s, p99", " ms", 30, 10),
        "events_lost": Wanted("events lost on their way to a stream", "", 0, 0),
        "enqueue_p99": Wanted("enqueue to job start on an idle pool, p99", " ms", 100, 30),
        "jobs_vs_noop": Wanted("jobs per second, against a bare procrastinate no-op", "", 0.4, 0.7, more=True),
        "search_small_p50": Wanted("search, top 10 of 1,000 memories, p50", " ms", 8),
        "search_small_ratio": Wanted("the same, against the raw exact scan", "", 2.5, 1.2),
        "search_scopes_p50": Wanted("search, 100,000 memories in 100 scopes, p50", " ms", 8, 6),
        "search_scopes_p99": Wanted("the same, p99", " ms", 25, 15),
        "search_scopes_recall": Wanted("the same, recall@10 of its vector part", "", 0.99, 0.99, more=True),
        "search_giant_p50": Wanted("search, one scope of 100,000, p50", " ms", 40, 25),
        "search_giant_p99": Wanted("the same, p99", " ms", 100, 60),
        "search_giant_recall": Wanted("the same, recall@10 of its vector part", "", 0.99, more=True),
        "search_giant_recall_sentences": Wanted(
            "the same, real sentences (benchmarks.search --sentences)", "", 0.99, more=True, by_hand=True
        ),
        "vector_queries": Wanted("vectors alone, 100,000, queries per second", "/s", 400, 1000, more=True),
        "window_p99": Wanted("context window of 8,000 tokens, p99", " ms", 40, 20),
        "cleanup_append_ratio": Wanted("append p99 during a clean-up, against quiet", "x", 2, 1.3),
        "recovery_seconds": Wanted("recovery of a killed worker's jobs", " s", 2, 1),
        "writer_start": Wanted("start of a writer, until it answers, median", " s", 2, 1),
        "demo_seconds": Wanted("`make demo` where nothing is installed yet", " s", 45, 35),
        "demo_megabytes": Wanted("its packages and its database", " MB", 350, 300),
        "idle_share": Wanted("idle: every role and PostgreSQL together", " % of a core", 0.3, 0.2),
        "idle_share_pulse": Wanted("the same, with the role pulse", " % of a core", 0.3, 0.2),
        "pulse_share": Wanted("the autonomic layer's role, nothing to do", " % of a core", 1, 0.2),
        "pulse_writes": Wanted("its writes for sensing and ticking, a minute", "", 10, 4),
        "pulse_wake_p99": Wanted("from its wake to its tick, p99", " ms", 100),
        "frames_many_p99": Wanted("append to frame, 1,000 subscribers, p99", " ms", 150),
        "frames_many_lost": Wanted("events lost on their way to them", "", 0, 0),
        "thread_bytes": Wanted("600 messages of a thread, at each of 300 sockets", " MB", 0.6, 0.4),
        "thread_lag": Wanted("20 messages to 300 sockets, until the last is there, p50", " s", 2, 1),
        "thread_run_started": Wanted("RUN_STARTED at 300 sockets of a thread, the last", " s", 0.2, 0.05),
        "returning_refused": Wanted("of 1,000 that come back at once, refused", "", 0, 0),
        "consolidation_p99": Wanted("consolidation of 20 turns, without the model, p99", " ms", 500, 100),
        "memories_found": Wanted("new memories found by the very next statement", " %", 100, 100, more=True),
        "live_prompt": Wanted("prompt characters per 1,000 live turns", "", 680_000, 400_000),
        "live_calls": Wanted("calls of the model per 1,000 live turns", "", 80, 60),
        "cleanup_batch": Wanted("longest transaction of a clean-up", " ms", 1000),
        "decay_rewrites": Wanted("rows rewritten by 30 days of decay", "", 0, 0),
        "recall_local": Wanted(
            "LoCoMo dev file, evidence in the top 10, local", "", 0.775, 0.81, more=True, of_file=True
        ),
        "recall_minilm": Wanted("the same, given MiniLM vectors", "", 0.785, 0.82, more=True, of_file=True),
        "window_new_2000": Wanted("gold turns in 2,000 tokens, new session", "", 0.90, 0.93, more=True, of_file=True),
        "window_new_4000": Wanted("gold turns in 4,000 tokens, new session", "", 0.94, 0.96, more=True, of_file=True),
        "window_new_8000": Wanted("gold turns in 8,000 tokens, new session", "", 0.97, 0.985, more=True, of_file=True),
        "window_running_2000": Wanted(
            "gold turns in 2,000 tokens, running session", "", 0.85, 0.93, more=True, of_file=True
        ),
        "window_running_4000": Wanted(
            "gold turns in 4,000 tokens, running session", "", 0.94, 0.96, more=True, of_file=True
        ),
        "window_running_8000": Wanted(
            "gold turns in 8,000 tokens, running session", "", 0.97, 0.985, more=True, of_file=True
        ),
        "facts_precision": Wanted("facts of local, unread sets: precision", "", 0.90, 0.95, more=True),
        "facts_recall": Wanted("facts of local, unread sets: recall", "", 0.60, 0.80, more=True),
        "facts_current_state": Wanted("facts of local, unread sets: current state", "", 0.95, more=True),
        "knowledge_ingest": Wanted("knowledge: chunks ingested with local vectors", "/s", 200, 1000, more=True),
        "knowledge_again": Wanted("texts embedded of an unchanged corpus", "", 0, 0),
        "knowledge_p50": Wanted("search in a corpus of 100,000 chunks, p50", " ms", 45, 25),
        "knowledge_p99": Wanted("the same, p99", " ms", 100, 60),
        "knowledge_ratio": Wanted("the same, against the raw exact scan", "", 1.0, 0.5),
        "cranfield_words": Wanted("Cranfield, nDCG@10, words alone", "", 0.52, 0.53, more=True),
        "cranfield_local": Wanted("the same with vectors of local", "", 0.52, 0.53, more=True),
        "tool_call_p50": Wanted("a tool's call, over that of its function, p50", " ms", 10, 3),
        "tool_call_p99": Wanted("the same, p99", " ms", 50, 10),
        "tool_update_p99": Wanted("a changed tool in 10 processes, p99", " s", 1, 0.2),
        "sandbox_monty_p50": Wanted("sandbox monty, start and one sum, p50", " ms", 50, 2),
        "sandbox_bwrap_p50": Wanted("sandbox bwrap, start and one sum, p50", " ms", 2000, 200),
        "tracing_run_overhead": Wanted("a run with 50 spans, against one without tracing", "", 1.03),
    }
)


def figure(name: str, value: float, note: str = "") -> bool:
    """Report a figure and return whether it reaches its must."""
    wanted = FIGURES[name]
    met = wanted.is_met(value)
    shown = f"{value:.3g}{wanted.unit}"
    print(f"{wanted.what:<58} {shown:>18} {'' if met else 'MISSED':>10}  {wanted.text}  {note}".rstrip(), flush=True)
    file = os.environ.get(FILE_VARIABLE)
    if file:
        with Path(file).open("a") as lines:
            lines.write(json.dumps({"name": name, "value": value}) + "\n")
    return met


def collect(file: Path) -> dict[str, dict[str, object]]:
    """Return the figures of a file by name, with what they must reach; the worst one of a name counts."""
    values: dict[str, list[float]] = {}
    for line in file.read_text().splitlines():
        each = json.loads(line)
        values.setdefault(each["name"], []).append(each["value"])
    found: dict[str, dict[str, object]] = {}
    for name, reported in values.items():
        wanted = FIGURES[name]
        value = wanted.worst(reported)
        found[name] = {
            "what": wanted.what,
            "value": value,
            "unit": wanted.unit.strip(),
            "must": wanted.must,
            "aim": wanted.aim,
            "more_is_better": wanted.more,
            "met": wanted.is_met(value),
        }
    return found


def unmeasured(found: Iterable[str], *, file: bool, minilm: bool) -> tuple[list[str], list[str]]:
    """Return the figures that no benchmark reported although it ran, and those that were not asked for.

    Args:
        found: the names of what was reported.
        file: whether the benchmarks that need a LoCoMo file ran.
        minilm: whether vectors of MiniLM for it lay beside it.
    """
    absent: list[str] = []
    unasked: list[str] = []
    for name in FIGURES.keys() - set(found):
        wanted = FIGURES[name]
        asked = not wanted.by_hand and (not wanted.of_file or (file and (minilm or name != "recall_minilm")))
        (absent if asked else unasked).append(name)
    return sorted(absent, key=list(FIGURES).index), sorted(unasked, key=list(FIGURES).index)
