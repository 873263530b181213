"""The commands by which people write."""

from __future__ import annotations

import json
from uuid import uuid4

from tests.support.cli_commands import Run


def test_a_fact_is_written_corrected_confirmed_and_retired(cli: Run) -> None:
    """By its id, as `facts --json` shows it; the history names who did what."""
    code, out, err = cli("facts", "remember", "car", "a red one", "--by", "support", "--since", "2024-05-01", "--json")
    assert code == 0, err
    (fact,) = json.loads(out)["ids"]
    assert "Corrected: fact" in cli("facts", "correct", fact, "a blue one", "--by", "ada")[1]
    assert "Unchanged" in cli("facts", "correct", fact, "a blue one")[1]
    assert "Confirmed" in cli("facts", "confirm", fact, "--by", "bo")[1]
    assert "Retired" in cli("facts", "retire", fact, "--by", "cy")[1]
    assert "Unchanged" in cli("facts", "retire", fact)[1]
    assert fact not in cli("facts", "--json")[1]


def test_the_history_shows_what_was_written_by_hand(cli: Run) -> None:
    """Who wrote a fact and who confirmed it."""
    cli("facts", "remember", "car", "a red one", "--by", "support")
    fact = next(each["id"] for each in json.loads(cli("facts", "--json")[1]) if each["key"] == "car")
    cli("facts", "confirm", fact, "--by", "bo")
    (version,) = json.loads(cli("facts", "show", "car", "--json")[1])
    assert (version["written_by"], version["confirmed_by"]) == ("support", "bo")
    out = cli("facts", "show", "car")[1]
    assert "by hand (support)" in out
    assert "confirmed by bo" in out


def test_what_was_extracted_is_corrected(cli: Run) -> None:
    """A person's word stands above a turn's."""
    home = next(each for each in json.loads(cli("facts", "--json")[1]) if "Oslo" in json.dumps(each["value"]))
    cli("facts", "correct", home["id"], "Bergen", "--by", "ada")
    shown = [each["value"] for each in json.loads(cli("facts", "--json")[1])]
    assert "Bergen" in shown
    assert home["value"] not in shown


def test_several_values_are_json(cli: Run) -> None:
    edit = json.loads(cli("facts", "remember", "allergies", '["nuts", "soy"]', "--json-value", "--json")[1])
    assert len(edit["ids"]) == 2
    code, _, err = cli("facts", "remember", "allergies", "[nuts", "--json-value")
    assert (code, "it is not JSON" in err) == (2, True)


def test_a_memory_is_written_corrected_and_retired(cli: Run) -> None:
    """The search finds it at once, and no longer after it was retired."""
    edit = json.loads(cli("memory", "remember", "Ada signs as Zanzibar.", "--name", "sign", "--json")[1])
    assert "Zanzibar" in cli("search", "Zanzibar")[1]
    again = json.loads(cli("memory", "remember", "Ada signs as Zanzibar.", "--name", "sign", "--json")[1])
    assert again == {**edit, "changed": False}
    (former,) = edit["ids"]
    (now,) = json.loads(cli("memory", "correct", former, "Ada signs as Qaanaaq.", "--json")[1])["ids"]
    assert now != former
    assert "Confirmed: memory" in cli("memory", "confirm", now)[1]
    assert "Retired" in cli("memory", "retire", now)[1]
    assert "Qaanaaq" not in cli("memories", "--json")[1]
    assert "retired by hand" in cli("memory", "archived")[1]


def test_an_unknown_id_is_an_error(cli: Run) -> None:
    for words in (("correct", str(uuid4()), "x"), ("retire", str(uuid4())), ("confirm", str(uuid4()))):
        code, _, err = cli("memory", *words)
        assert (code, "there is no memory and no fact" in err) == (1, True)


def test_nothing_is_remembered_for_a_blank_user_or_the_app_of_all(cli: Run) -> None:
    for app, user, reason in (("shop", "  ", "user_id is blank"), ("*", "ann", "stands for the policy of all apps")):
        code, _, err = cli("memory", "remember", "Ann lives in Turin.", "--app", app, "--user", user)
        assert (code, reason in err) == (1, True), err
