"""The report of a run, as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tests.chaos.drill import Outcome


def render(outcome: Outcome) -> str:
    """Render the report: the verdict, then the faults and the work, then every rule with its count."""
    broken = outcome.findings.total
    verdict = "nothing lost, nothing twice" if not broken else f"{broken} violations"
    return "\n".join(
        [
            f"chaos: {verdict}  (seed {outcome.seed}, {outcome.seconds:g} s)",
            "",
            *_faults(outcome),
            "",
            *_work(outcome),
            "",
            *_recoveries(outcome),
            "",
            *_rules(outcome),
            "",
        ]
    )


def _faults(outcome: Outcome) -> Iterator[str]:
    yield "Faults injected"
    for kind, count in sorted(outcome.injector.done.items()):
        yield f"  {kind:<36} {count:>7}"
    gemini = outcome.gemini
    yield f"  {'model calls, failed of all':<36} {sum(gemini['faults'].values()):>7} of {_sum(gemini['calls'])}"
    for kind, count in sorted(gemini["faults"].items()):
        yield f"    {kind:<34} {count:>7}"
    down = outcome.injector.database_down_seconds
    yield f"  {'longest database outage':<36} {max(down, default=0.0):>7.1f} s"


def _work(outcome: Outcome) -> Iterator[str]:
    ledger, totals = outcome.ledger, outcome.totals
    yield "Work done"
    yield f"  {'events answered':<36} {len(ledger.numbers):>7}"
    yield f"  {'appends retried':<36} {ledger.retries:>7}"
    yield f"  {'longest wait for an append':<36} {ledger.longest_wait_seconds:>7.1f} s"
    for name, count in totals.items():
        yield f"  {name.replace('_', ' ') + ' stored':<36} {count:>7}"
    for code, count in sorted(outcome.retried_by_hand.items()):
        yield f"  {'failed for good, retried: ' + code:<36} {count:>7}"
    yield f"  {'backfills enqueued by hand':<36} {outcome.backfills_by_hand:>7}"
    yield f"  {'drained within':<36} {outcome.drain_seconds:>7.1f} s"
    ends = [slot.ends for slot in outcome.slots]
    yield f"  {'processes started':<36} {sum(each.starts for each in ends):>7}"
    refused = sorted(code for each in ends for code in each.refused)
    yield f"  {'of them exited before ready':<36} {len(refused):>7}  exit codes {sorted(set(refused))}"
    yield f"  {'largest process':<36} {max(each.peak_kilobytes for each in ends) / 1024:>7.0f} MB"


def _recoveries(outcome: Outcome) -> Iterator[str]:
    seen = outcome.recoveries.seen
    clean = [each for each in seen if not each.is_disturbed]
    yield "Recovery after kill -9 of a worker with running jobs"
    yield f"  {'kills':<36} {len(seen):>7}  with {sum(each.jobs for each in seen)} jobs"
    for name, all_, undisturbed in (
        ("given back", [each.given_back_seconds for each in seen], [each.given_back_seconds for each in clean]),
        ("taken up again", [each.taken_up_seconds for each in seen], [each.taken_up_seconds for each in clean]),
    ):
        yield f"  {name:<36} {_spread(all_)}"
        yield f"  {'  with a running peer, no next fault':<36} {_spread(undisturbed)}"
    for each in seen:
        if each.story:
            waited = "over a minute" if each.taken_up_seconds is None else f"{each.taken_up_seconds:.2f} s"
            yield f"  waited {waited}{', disturbed' if each.is_disturbed else ''}: {each.story[0]}"
            yield from (f"    {line}" for line in each.story[1:])


def _rules(outcome: Outcome) -> Iterator[str]:
    findings = outcome.findings
    yield "Violations, checks"
    for rule, checks in sorted(findings.checks.items()):
        yield f"  {rule:<36} {findings.broken[rule]:>7}  {checks:>6}"
        for example in findings.examples.get(rule, ()):
            yield f"      {example}"


def _spread(seconds: Sequence[float | None]) -> str:
    known = [each for each in seconds if each is not None]
    if not seconds:
        return "   none"
    never = f", {len(seconds) - len(known)} not within a minute" if len(known) < len(seconds) else ""
    if not known:
        return f"   none{never}"
    return f"p50 {statistics.median(known):.2f} s, max {max(known):.2f} s of {len(known)}{never}"


def _sum(counts: dict[str, int]) -> int:
    return sum(counts.values())
