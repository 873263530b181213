"""The command line: its output for people, pipes and programs, its exit codes, and its one-sentence errors."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import click
import pytest
from click.testing import CliRunner

from pulse.process.extras import install_command
from tests.support import cli_process
from tests.support.cli_commands import Run, execute, fetch
from tests.support.paths import ROOT
from workers import settings
from workers.cli import main
from workers.cli.databases import name_of
from workers.cli.moments import asked_at_option, time_zone_option
from workers.pools import POOLS
from workers.process import roles


def test_the_roles_are_those_of_the_procfile() -> None:
    lines = (ROOT / "Procfile").read_text().splitlines()
    expected = {name: command.split()[1:] for name, _, command in (line.partition(": ") for line in lines)}
    assert {role.name: list(role.arguments) for role in roles.ROLES} == expected
    assert set(POOLS) < set(expected)


def commands() -> Iterator[tuple[str, ...]]:
    for name in main.COMMANDS:
        yield (name,)
        command = main.root.get_command(None, name)  # type: ignore[arg-type]
        yield from ((name, sub) for sub in getattr(command, "commands", ()))


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_help_with_an_example(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main.root, [*words, "--help"])
    assert shown.exit_code == 0
    assert "Example" in shown.output
    assert f"hippocampus {' '.join(words)}" in " ".join(shown.output.split())
    roles_and_bars = ("demo", "up", "down", "writer", "worker", "mcp", "export", "completion", "grant-roles")
    groups = (
        ("retention",),
        ("sessions",),
        ("forget",),
        ("memory",),
        ("instructions",),
        ("keys",),
        ("webhooks",),
        ("pulse",),
    )
    # An export is plain JSON lines.
    if words[0] not in roles_and_bars and words not in (
        *groups,
        ("pulse", "start"),
        ("pulse", "dev"),
        ("pulse", "daemon"),
        ("memory", "export"),
        ("audit", "export"),
    ):
        assert "--json" in shown.output


def test_ingest_reports_the_format_and_missing_workers(
    run: Run, dsn: str, talk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", dsn)
    code, out, _ = run("ingest", talk, "--finalize", "--app", "notes")
    assert code == 0
    assert "(LoCoMo JSON)." in out
    assert "Appended 5 events to 2 sessions." in out
    assert "Enqueued 4 jobs." in out
    assert "No worker runs now: `hippocampus up` starts them" in out
    code, out, _ = run("ingest", talk, "--app", "notes", "--json")
    shown = json.loads(out)
    assert (shown["app"], shown["formats"], shown["unread"]) == ("notes", {"LoCoMo JSON": 1}, [])
    assert (shown["sessions"], shown["events_new"], shown["events_known"], shown["rejected"]) == (2, 0, 5, 0)


def test_facts_name_their_source_turns(cli: Run) -> None:
    code, out, _ = cli("facts")
    assert code == 0
    header, *rows = [line.split("\t") for line in out.splitlines()]
    assert header == ["type", "key", "fact", "confidence", "said in"]
    assert any("peanuts" in row[2] and "ada-session-1 #1 Ada: “My name is Ada." in row[4] for row in rows)
    facts = json.loads(cli("facts", "--type", "preference", "--json")[1])
    assert any("普洱" in fact["value"]["text"] and fact["said"][0]["sequence_num"] == 4 for fact in facts)
    assert {fact["fact_type"] for fact in facts} == {"preference"}


def test_past_facts_candidates_and_merges(cli: Run, dsn: str) -> None:
    """Queries of the past, the lists beside the facts, and decisions on them."""
    assert "Oslo" not in cli("facts", "--as-of", "2001-01-01")[1]
    assert "Oslo" in cli("facts", "--as-of", "2101-01-01T00:00:00Z", "--known-at", "2101-01-01")[1]
    code, _, err = cli("facts", "--as-of", "yesterday")
    assert code == 2
    assert "is not a date" in err
    assert cli("facts", "candidates")[2].strip() == "There are no candidates."
    record = """SELECT record_fact(t, ROW(NULL, 1, 1, NULL, NULL, NULL)::slice_origin,
                    ROW('profile', $1, to_jsonb($2::text), $1, NULL, $3, '{1}', now(), 'k', NULL, '')::fact_input)
                FROM threads AS t LIMIT 1"""
    for key, value, confidence in (("first key", "sure", 0.9), ("second key", "unsure", 0.2)):
        asyncio.run(execute(dsn, record, key, value, confidence))
    (candidate,) = json.loads(cli("facts", "candidates", "--json")[1])
    assert "unsure" in cli("facts", "candidates")[1]
    assert "It is now the fact" in cli("facts", "promote", candidate["id"])[1]
    assert cli("facts", "promote", candidate["id"])[0] == 1
    (merge,) = json.loads(cli("facts", "merges", "--json")[1])
    assert (merge["from_key"], merge["to_key"]) == ("second key", "first key")
    assert json.loads(cli("facts", "undo-merge", merge["id"], "--json")[1])["fact_id"]
    assert {"first key", "second key"} <= {each["key"] for each in json.loads(cli("facts", "--json")[1])}


def test_instructions_are_put_rolled_back_and_proposals_decided_on(cli: Run, dsn: str) -> None:
    app = ("--app", "ada")
    assert "Be brief." in cli("instructions", "put", "tone", "Be brief.", *app)[1]
    assert cli("instructions", "put", "tone", "x", *app, "--expect", "0")[0] == 1
    cli("instructions", "put", "tone", "Be kind.", *app)
    assert json.loads(cli("instructions", "rollback", "tone", "1", *app, "--json")[1])[0]["version"] == 3
    assert cli("instructions", "rollback", "tone", "9", *app)[0] == 1
    assert cli("instructions", "history", "none", *app)[0] == 1
    assert len(json.loads(cli("instructions", "history", "tone", *app, "--json")[1])) == 3
    for key in ("a", "b"):
        insert = """INSERT INTO instruction_proposals (app_name, user_id, instruction_key, content, base_version)
                    VALUES ('ada', 'ann', $1, 'Be long.', 0)"""
        asyncio.run(execute(dsn, insert, key))
    second, first = json.loads(cli("instructions", "proposals", *app, "--json")[1])
    assert "approved" in cli("instructions", "approve", first["id"], *app, "--by", "ops")[1]
    assert "rejected" in cli("instructions", "reject", second["id"], *app)[1]
    assert cli("instructions", "approve", first["id"], *app)[0] == 1
    assert "There are no proposals." in cli("instructions", "proposals", *app)[2]
    assert [each["key"] for each in json.loads(cli("instructions", "list", *app, "--json")[1])] == ["a", "tone"]


def test_a_replay_shows_its_changes_and_then_applies_them(cli: Run, dsn: str) -> None:
    """A fact that the rules do not extract is dropped, the rest is kept; without --apply nothing changes."""
    session = "ada-session-1"
    asyncio.run(
        execute(
            dsn,
            """INSERT INTO memories (thread_id, app_name, user_id, memory_type, content, from_seq, upto_seq)
               SELECT id, app_name, user_id, 'semantic', 'Invented.', 1, 1 FROM threads WHERE session_id = $1""",
            session,
        )
    )
    code, out, err = cli("replay", session)
    assert code == 0, err
    assert "Invented." in out
    assert "Nothing was changed; with --apply it would be: 0 added, 1 dropped" in out
    assert "Invented." in cli("memories")[1]
    owner = json.loads(cli("memories", "--json")[1])[0]["user_id"]
    report = json.loads(cli("replay", "--user", owner, "--apply", "--json")[1])
    assert (report["applied"], report["counts"]["dropped"], report["counts"]["added"]) == (True, 1, 0)
    assert "Invented." not in cli("memories")[1]
    assert cli("replay")[0] == 2
    assert cli("replay", "no-such-session")[0] == 1


def test_a_facts_history_shows_what_was_true_before(cli: Run) -> None:
    facts = json.loads(cli("facts", "--json")[1])
    (home,) = (fact["key"] for fact in facts if "Oslo" in str(fact["value"]))
    _, out, _ = cli("facts", "show", home)
    current, old = out.splitlines()[1:]
    assert current.startswith("current\tAda: lives in Oslo")
    assert old.startswith("superseded\tAda: lives in Turin")
    code, _, err = cli("facts", "show", "no_such_key")
    assert (code, err) == (1, "hippocampus: There is no fact with the key 'no_such_key': see `hippocampus facts`.\n")


def test_a_question_is_asked_at_a_time_of_a_zone(cli: Run) -> None:
    for command in ("search", "context", "recall", "ask"):
        when = ("--asked-at", "2026-05-01T15:30:00Z", "--time-zone")
        assert cli(command, "What happened yesterday?", *when, "Asia/Tokyo")[0] == 0
        if command != "search":
            said = cli(command, "I moved to Oslo", *when, "Etc/GMT+12")[1]
            assert ("30 June" in said, "1 July" in said) == (True, False)
        code, _, err = cli(command, "What happened yesterday?", *when, "Mars")
        assert code == 1
        assert "no time zone 'Mars'" in err


@pytest.mark.parametrize(
    ("given", "utc"),
    [
        (("--asked-at", "2026-05-01", "--time-zone", "America/New_York"), "2026-05-01T04:00:00"),
        (("--time-zone", "America/New_York", "--asked-at", "2026-05-01T09:30"), "2026-05-01T13:30:00"),
        (("--asked-at", "2026-05-01T00:00Z", "--time-zone", "America/New_York"), "2026-05-01T00:00:00"),
        (("--asked-at", "2026-05-01"), "2026-05-01T00:00:00"),
        (("--asked-at", "2026-05-01", "--time-zone", "Mars"), "2026-05-01T00:00:00"),
    ],
)
def test_a_time_without_a_zone_is_of_the_given_one(given: tuple[str, ...], utc: str) -> None:
    @click.command()
    @asked_at_option
    @time_zone_option
    def show(asked_at: datetime, time_zone: str | None) -> None:
        click.echo(f"{asked_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S} {time_zone}")

    shown = CliRunner().invoke(show, given)
    assert shown.output.split()[0] == utc


def test_search_explains_its_results(cli: Run) -> None:
    code, out, _ = cli("search", "who is allergic to peanuts", "--limit", "2")
    assert code == 0
    header, first, *_ = [line.split("\t") for line in out.splitlines()]
    assert header == ["score", "what", "content", "why"]
    assert "peanuts" in first[2]
    assert "words" in first[3]
    assert "peanut" in first[3]
    answer = json.loads(cli("search", "普洱", "--json", "--type", "summary")[1])
    assert answer["query"] == "普洱"
    assert {hit["memory_type"] for hit in answer["memories"]} <= {"summary"}
    code, _, err = cli("search", " ")
    assert code == 1
    assert "the query is blank" in err


def test_context_keeps_its_budget_and_accounts_for_it(cli: Run) -> None:
    code, out, err = cli("context", "plan a meal", "--session", "ada-session-1", "--tokens", "200")
    assert code == 0
    assert "## Conversation history" in out
    assert "of 200" in err
    window = json.loads(cli("context", "plan a meal", "--tokens", "120", "--json")[1])
    assert window["total_tokens"] <= 120
    assert window["text"]


def test_recall_prints_what_is_known(cli: Run) -> None:
    code, out, _ = cli("recall", "what can she not eat", "--tokens", "300")
    assert code == 0
    assert "peanut" in out
    assert out.startswith("## ")
    answer = json.loads(cli("recall", "what can she not eat", "--tokens", "60", "--template", "xml", "--json")[1])
    assert answer["total_tokens"] <= 60
    assert answer["text"].startswith("<")


@pytest.mark.parametrize("command", ["context", "recall"])
def test_what_is_printed_is_in_the_language_that_is_asked_for(cli: Run, command: str) -> None:
    """Headers and labels alone, also of a conversation in another language; a language without labels is refused."""
    written = {language: cli(command, "peanuts", "--language", language)[1] for language in ("en", "zh")}
    assert "## User preferences" in written["en"]
    assert "## 用户偏好" in written["zh"]
    assert not re.search("^## [A-Z]", written["zh"], re.MULTILINE)
    assert all("peanut" in text for text in written.values())
    assert json.loads(cli(command, "peanuts", "--language", "zh", "--json")[1])["language"] == "zh"
    assert cli(command, "peanuts", "--language", "fr")[0] == 2


def test_ask_prints_the_answer_and_what_it_rests_on(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a model it is the passages that match best; what nothing says is not known; a model that does not answer
    is an error that says what to do."""
    code, out, err = cli("ask", "what is she allergic to?")
    assert code == 0
    assert "peanut" in out
    assert "No model is set" in err
    assert "[turn " in err
    answer = json.loads(cli("ask", "zxcvbnm?", "--language", "zh", "--json")[1])
    assert (answer["text"], answer["is_known"], answer["citations"]) == ("不知道。", False, [])
    assert cli("ask", " ")[0] == 1
    assert cli("ask", "where?", "--tokens", "99")[0] == 2
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "openai:tiny")
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR_BASE_URL", "http://127.0.0.1:1/v1")
    code, out, err = cli("ask", "what is she allergic to?")
    assert (code, out) == (1, "")
    assert err.endswith("the connection failed (ConnectError): `hippocampus doctor` says what to do.\n")


def test_profile_prints_what_holds(cli: Run) -> None:
    """On one page, now or then; also at the head of a context window."""
    code, out, err = cli("profile")
    assert (code, err) == (0, "")
    assert "## About the user" in out
    assert "Oslo" in out
    assert "Turin" not in out
    page = json.loads(
        cli("profile", "ada", "--as-of", "2024-06-02", "--tokens", "100", "--language", "zh", "--json")[1]
    )
    assert "Turin" in page["text"]
    assert "## 资料" in page["text"]
    assert all(line["ids"] for line in page["lines"])
    assert cli("profile", "ada", "--user", "ada")[0] == 2
    window = cli("context", "plan a meal", "--profile", "--tokens", "2000")[1]
    assert window.count("Oslo") >= 1


def test_memories_sessions_and_one_session(cli: Run) -> None:
    summaries = json.loads(cli("memories", "--type", "summary", "--json")[1])
    assert len(summaries) == 2
    assert cli("memories")[1].startswith("strength\ttype\tsaid\tcontent\tid\n")
    rows = [line.split("\t") for line in cli("sessions")[1].splitlines()]
    # Ingested at once, in one millisecond or two: either may be the newer one.
    assert sorted(row[:4] for row in rows[1:]) == [["ada-session-1", "4", "4", "4"], ["ada-session-2", "1", "1", "1"]]
    assert len(json.loads(cli("sessions", "list", "--limit", "1", "--json")[1])) == 1
    _, out, _ = cli("sessions", "show", "ada-session-1", "--events", "1")
    assert out.splitlines()[-1] == "4\t2024-06-01 09:06\tAda\t我最喜欢的茶是普洱。"
    code, _, err = cli("sessions", "show", "nowhere")
    assert (code, err.startswith("hippocampus: there is no session 'nowhere' for app ")) == (1, True)
    assert err.endswith(": see `hippocampus sessions`\n")


def test_jobs_are_listed_shown_failed_and_run_again(cli: Run, dsn: str) -> None:
    listed = json.loads(cli("jobs", "--json")[1])
    assert {job["status"] for job in listed} == {"completed"}
    job_id = listed[0]["id"]
    assert cli("jobs", "--failed")[2].strip() == "No job has failed."
    code, _, err = cli("jobs", "retry", job_id)
    assert code == 1
    assert "only a failed job can be run again" in err

    asyncio.run(execute(dsn, "UPDATE procrastinate_jobs SET status = 'failed'"))
    asyncio.run(execute(dsn, "UPDATE consolidation_jobs SET error = 'the key is wrong', raw_reply = 'odd words'"))
    _, out, _ = cli("jobs", "--failed")
    assert "the key is wrong" in out
    _, out, _ = cli("jobs", "show", job_id)
    assert "odd words" in out
    assert [word for word in ("deferred", "started", "succeeded", "failed") if word not in out] == []
    shown = json.loads(cli("jobs", "show", job_id, "--json")[1])
    assert [each["type"] for each in shown["history"]][:2] == ["deferred", "started"]
    assert json.loads(cli("jobs", "retry", job_id, "--json")[1])["status"] == "pending"
    assert "cancelled" in cli("jobs", "cancel", job_id)[1]
    code, _, err = cli("jobs", "retry", str(uuid4()))
    assert code == 1
    assert "there is no job" in err
    assert cli("jobs", "show", "not-an-id")[0] == 2


def test_many_jobs_are_run_again_or_cancelled_by_filters(cli: Run, dsn: str) -> None:
    """By app, user, session, type and error code; other jobs are unchanged."""
    asyncio.run(execute(dsn, "UPDATE procrastinate_jobs SET status = 'failed'"))
    asyncio.run(
        execute(
            dsn,
            "UPDATE consolidation_jobs SET error_code = CASE job_type WHEN 'fast_replay' THEN '503' ELSE '400' END",
        )
    )
    listed = json.loads(cli("jobs", "list", "--error-code", "503", "--json")[1])
    assert {(job["job_type"], job["error_code"]) for job in listed} == {("fast_replay", "503")}
    older = json.loads(cli("jobs", "list", "--type", "fast_replay", "--before", listed[0]["id"], "--json")[1])
    assert [job["id"] for job in older] == [job["id"] for job in listed[1:]]
    assert "There is no app 'nobody'" in cli("jobs", "retry", "--all", "--app", "nobody")[2]
    assert cli("jobs", "retry", "--all", "--user", "nobody")[2].strip() == "There is no such job."
    again = json.loads(cli("jobs", "retry", "--all", "--error-code", "503", "--json")[1])
    assert {(job["id"], job["status"]) for job in again} == {(job["id"], "pending") for job in listed}
    assert len(json.loads(cli("jobs", "--failed", "--json")[1])) == 2
    gone = json.loads(cli("jobs", "cancel", "--all", "--type", "fast_replay", "--json")[1])
    assert [job["status"] for job in gone] == ["cancelled"] * len(listed)
    assert cli("jobs", "cancel", *(job["id"] for job in listed))[0] == 0
    for wrong in (("retry",), ("cancel", "--all", listed[0]["id"])):
        assert cli("jobs", *wrong)[0] == 2


def test_a_search_that_may_not_embed_is_answered_by_text(cli: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command obeys the limit that all processes share: during a penalty it makes no call, and says so."""
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-not-a-key-0123456789")
    monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", "http://127.0.0.1:9")
    asyncio.run(execute(dsn, "SELECT penalise_limit('gemini-embedding-001', 600, '429')"))
    for command in ("search", "context"):
        code, out, _ = cli(command, "where does she live")
        assert code == 0
        assert out
    assert "Note: " in cli("search", "where does she live")[2]
    assert not asyncio.run(fetch(dsn, "SELECT count(*) FROM call_breakers"))


def test_retention_previews_what_it_archives(cli: Run) -> None:
    dry = json.loads(cli("retention", "dry-run", "--threshold", "0.6", "--min-age-days", "0", "--json")[1])
    assert dry["stats"]["cleaned_count"] == len(dry["would_archive"]) == 2
    assert {each["memory_type"] for each in dry["would_archive"]} == {"episodic"}
    weak = [each["weak"] for each in dry["forecast"]]
    assert weak == sorted(weak)
    assert weak[0] == 0 < weak[-1]
    assert "began at 0.5, never used" in cli("retention", "dry-run", "--threshold", "0.6", "--min-age-days", "0")[1]
    code, out, _ = cli("retention", "run")
    assert code == 0
    assert out.startswith("Archived 0 memories")
    code, _, err = cli("retention", "dry-run", "--threshold", "7")
    assert code == 1
    assert "threshold" in err


def test_status_names_missing_processes(cli: Run) -> None:
    code, out, _ = cli("status")
    assert code == 0
    assert "2 sessions, 5 events" in out
    assert "missing   writer, fast_replay, deep_reflection, retention" in out
    assert json.loads(cli("status", "--json")[1])["totals"]["events"] == 5


def test_status_reports_that_the_model_is_not_called(cli: Run, dsn: str) -> None:
    asyncio.run(execute(dsn, "SELECT report_failure('fast_replay/m', NULL, '503', 1, 60, 600)"))
    asyncio.run(execute(dsn, "SELECT penalise_limit('m', 600, '429')"))
    asyncio.run(
        execute(dsn, "INSERT INTO embedding_refusals VALUES ('facts', gen_random_uuid(), 'm', md5('x'), '400')")
    )
    _, out, _ = cli("status")
    assert "refused   1 texts have no vector: m refuses them" in out
    assert "breaker   fast_replay/m is open: 1 calls in a row failed, the last with 503" in out
    assert "limit     no call of m for 9 min" in out.replace("10 min", "9 min")
    shown = json.loads(cli("status", "--json")[1])
    assert [each["state"] for each in shown["breakers"]] == ["open"]
    assert 500 < shown["limits"][0]["blocked_seconds"] <= 600


def test_migrate_reports_what_it_applied_and_then_nothing(
    run: Run, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_dsn)
    code, _, err = run("facts")
    assert code == 2
    assert "hippocampus migrate" in err
    assert "applied 0001_foundation.sql" in run("migrate")[1]
    assert json.loads(run("migrate", "--json")[1])["applied"] == []
    code, _, err = run("facts")
    assert code == 1
    assert "There is no session yet: run `hippocampus demo`" in err


def test_several_users_are_listed_and_one_can_be_chosen(cli: Run, talk: str) -> None:
    assert cli("ingest", talk, "--user", "bob", "--app", "other")[0] == 0
    code, _, err = cli("facts")
    assert code == 1
    assert "say which" in err
    assert "--app default --user ada" in err
    assert "--app other --user bob" in err
    assert cli("facts", "--user", "ada")[0] == 0
    assert cli("facts", "--app", "other", "--user", "bob")[2].strip() == "No facts are known yet."
    assert "There is no user that fits --user eve" in cli("facts", "--user", "eve")[2]


async def test_a_user_is_found_behind_many_later_ones(cli: Run, dsn: str) -> None:
    await execute(dsn, "SELECT create_session('crowd', 'u' || n, 's', '{}') FROM generate_series(1, 130) AS n")
    assert (await asyncio.to_thread(cli, "facts", "--user", "ada"))[0] == 0
    assert (await asyncio.to_thread(cli, "facts", "--app", "default"))[0] == 0
    for wrong in ([], ["--user", "eve"], ["--app", "crowd"]):
        said = (await asyncio.to_thread(cli, "facts", *wrong))[2]
        assert said.count("--app crowd --user ") == 12
        assert said.endswith("and more (`hippocampus users` lists them).\n")


def test_the_version_is_reported_installed_or_not(run: Run) -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("hippocampus ")


def test_misspelt_words_get_a_suggestion(run: Run, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    code, _, err = run("serach", "x")
    assert code == 2
    assert "did you mean search?" in err
    assert run("search")[0] == 2
    monkeypatch.setenv("HIPPOCAMPUS_API_PROT", "1")
    code, _, err = run("status")
    assert (code, err.count("\n")) == (2, 1)
    assert "did you mean HIPPOCAMPUS_API_PORT?" in err
    monkeypatch.delenv("HIPPOCAMPUS_API_PROT")
    code, _, err = run("worker", "fast_reply")
    assert code == 2
    assert "fast_replay" in err
    monkeypatch.setenv("HIPPOCAMPUS_HOME", str(home))
    code, _, err = run("facts")
    assert code == 2
    assert "run `hippocampus demo`" in err
    assert not home.exists()


@pytest.mark.parametrize(("package", "command"), [("click", "--help"), ("rich", "migrate")])
def test_without_its_extra_the_program_says_what_to_install(
    package: str, command: str, home: Path, tmp_path: Path
) -> None:
    """One sentence, no traceback; also if another package installed click, and a command lacks the rest."""
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('no', name='{package}')")
    done = cli_process.run(home, command, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert install_command("cli") in done.stderr


@pytest.mark.parametrize("noun", ["memory", "retention", "forget"])
def test_a_noun_without_a_list_shows_its_help(noun: str, run: Run) -> None:
    code, out, err = run(noun)
    assert (code, out) == (2, "")
    assert err.startswith(f"Usage: hippocampus {noun} [OPTIONS] COMMAND")
    assert err.count("\n") > 10


def test_a_closed_pipe_is_not_an_error(cli: Run, dsn: str, home: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" | head -n 1', "sh", *cli_process.command("facts")],
        env=cli_process.environment(home, DATABASE_URL=dsn),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("type\t")


def test_the_displayed_database_name_has_no_password(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("HIPPOCAMPUS_HOME", str(home))
    assert name_of(settings.load()) == f"embedded PostgreSQL below {home}"
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:hush@db:5433/app?sslmode=require")
    assert name_of(settings.load()) == "postgresql://me@db:5433/app"
