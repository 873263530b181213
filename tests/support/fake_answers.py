"""The regular replies of the fake models: deterministic, plausible, from the request alone."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

# A name other than a plain one is quoted as JSON, and may contain anything.
TURN = re.compile(r'^(?P<seq>-?\d+) (?:\d\d:\d\d )?(?P<label>"(?:[^"\\]|\\.)*"|[^"]+) (?P<text>".*")$')

#: A passage of the memory, below a question.
PASSAGE = re.compile(r'^(?P<number>\d+) .*?"(?P<text>(?:[^"\\]|\\.)*)"')
#: How the first message of a request begins that is not a probe.
KNOWN_BEGINNINGS = ("BEGIN CONVERSATION", "BEGIN MEMORY", "BEGIN TEXTS")

#: (type, key, pattern): the first group is the value. One turn may yield several facts.
FACT_PATTERNS = tuple(
    (fact_type, key, re.compile(pattern, re.IGNORECASE))
    for fact_type, key, pattern in (
        ("profile", "name", r"\bmy name is ([\w'-]+)"),
        ("profile", "name", r"我(?:叫|的名字是)(\w{1,8})"),
        ("profile", "home_city", r"\bI live in ([\w' -]+?)(?: and\b|[.,!?]|$)"),
        ("profile", "home_city", r"我住在(\w{1,8})"),
        ("profile", "occupation", r"\bI work as an? ([\w' -]+?)(?: at\b|[.,!?]|$)"),
        ("preference", "likes", r"\bI (?:like|love) ([\w' -]+?)(?:[.,!?]|$)"),
        ("preference", "likes", r"我喜欢(\w{1,20})"),
        ("preference", "avoids", r"我不吃(\w{1,8})"),
        ("preference", "favourite_food", r"\bmy favourite food is ([\w' -]+?)(?:[.,!?]|$)"),
        ("preference", "food_preference", r"\bthe food I prefer is ([\w' -]+?)(?:[.,!?]|$)"),
        ("profile", "hobbies", r"\bmy hobby is ([\w' -]+?)(?:[.,!?]|$)"),
        ("rule", "never", r"\bnever ([\w' -]+?)(?:[.,!?]|$)"),
    )
)


#: The same for what is taken back.
ENDED_PATTERNS = tuple(
    (fact_type, key, re.compile(pattern, re.IGNORECASE))
    for fact_type, key, pattern in (
        ("profile", "home_city", r"\bI no longer live in ([\w' -]+?)(?:[.,!?]|$)"),
        ("profile", "hobbies", r"\bI gave up ([\w' -]+?)(?:[.,!?]|$)"),
        ("preference", "likes", r"\bI never (?:liked|loved) ([\w' -]+?)(?:[.,!?]|$)"),
        ("preference", "likes", r"我不再喜欢(\w{1,20})"),
    )
)


def generate(body: dict[str, Any]) -> dict[str, Any]:
    """The JSON object that the request's schema describes."""
    config = body.get("generationConfig", {})
    schema = config.get("responseJsonSchema") or config.get("responseSchema") or {}
    return reply_to(first_text(body), is_summary="summary" in schema.get("properties", {}))


def reply_to(transcript: str, *, is_summary: bool) -> dict[str, Any]:
    """The JSON object that a good model returns."""
    if transcript.startswith("BEGIN MEMORY"):
        return answer_to(transcript)
    if transcript.startswith("BEGIN TEXTS"):
        return ranking_of(transcript)
    turns = turns_of(transcript)
    if is_summary:
        return {"summary": summarise(turns)}
    known = known_of(transcript)
    return {"facts": facts(turns), "insights": insights(turns, known), "instructions": proposals(turns)}


def answer_to(content: str) -> dict[str, Any]:
    """The passages that share a word with the question, and their text; not known if there is none."""
    question = json.loads(content.rpartition("\nQUESTION ")[2])
    wanted = _words(question)
    cited = [
        (int(match["number"]), json.loads(f'"{match["text"]}"'))
        for match in map(PASSAGE.match, content.split("\n"))
        if match and wanted & _words(match["text"])
    ]
    text = "; ".join(dict.fromkeys(each for _, each in cited))
    return {"citations": [number for number, _ in cited], "known": bool(cited), "answer": text}


def ranking_of(content: str) -> dict[str, Any]:
    """The texts that share a word with the question: those with a figure first, and of these the last one."""
    wanted = _words(json.loads(content.rpartition("\nQUESTION ")[2]))
    texts = [line.partition(" ") for line in content.split("\n")[1:] if line[:1].isdigit()]
    helpful = [(bool(re.search(r"\d", text)), int(number)) for number, _, text in texts if wanted & _words(text)]
    return {"best": [number for _, number in sorted(helpful, reverse=True)]}


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{4,}|[\u4e00-\u9fff]{2}", text.lower()))


def first_text(body: dict[str, Any]) -> str:
    """The text of the first content: the conversation, even in a request for a repair."""
    return str(body["contents"][0]["parts"][0]["text"])


def turns_of(transcript: str) -> list[tuple[int, str, str]]:
    """(sequence number, label, text) of each turn's line."""
    matches = (TURN.match(line) for line in transcript.split("\n"))
    return [(int(m["seq"]), m["label"], json.loads(m["text"])) for m in matches if m]


def known_of(transcript: str) -> list[str]:
    """The insights that are listed below the conversation."""
    _, _, listed = transcript.partition("\nKNOWN INSIGHTS\n")
    return [json.loads(line.partition(" ")[2]) for line in listed.splitlines()]


def repeated(content: str, known: list[str]) -> dict[str, int]:
    """The number of the known insight with most of these words, and the same numbers in them, if there is one."""
    words, numbers = set(re.findall(r"\w{4,}", content.lower())), re.findall(r"\S*\d\S*", content)
    for number, each in enumerate(known, start=1):
        shared = words & set(re.findall(r"\w{4,}", each.lower()))
        if len(shared) > 0.6 * len(words) and re.findall(r"\S*\d\S*", each) == numbers:
            return {"repeats": number}
    return {}


def summarise(turns: list[tuple[int, str, str]]) -> str:
    said = " ".join(" ".join(text.split()) for _, _, text in turns)
    return f"The user spoke of: {said}"[:200].strip()


def facts(turns: list[tuple[int, str, str]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, bool], dict[str, Any]] = {}
    patterns = [*((*each, False) for each in FACT_PATTERNS), *((*each, True) for each in ENDED_PATTERNS)]
    for seq, label, text in turns:
        if label in ("A", "T"):
            continue
        for fact_type, key, pattern, ended in patterns:
            for match in pattern.finditer(text):
                fact = found.setdefault(
                    (fact_type, key, ended),
                    {"type": fact_type, "key": key, "value": [], "confidence": 0.95, "source_turns": []}
                    | ({"ended": True} if ended else {}),
                )
                fact["value"].append(match.group(1).strip())
                fact["source_turns"].append(seq)
    for fact in found.values():
        fact["source_turns"] = sorted(set(fact["source_turns"]))
        if len(fact["value"]) == 1:
            fact["value"] = fact["value"][0]
    return list(found.values())


def insights(turns: list[tuple[int, str, str]], known: list[str]) -> list[dict[str, Any]]:
    decided = [(seq, text) for seq, _, text in turns if re.search(r"\bdecided\b|决定", text)]
    return [
        {"content": content, "importance": "high", "source_turns": [seq], **repeated(content, known)}
        for seq, text in decided
        for content in (f"A decision was taken: {text.strip()}",)
    ]


def proposals(turns: list[tuple[int, str, str]]) -> list[dict[str, Any]]:
    asked = [
        (seq, re.search(r"please (always [^.!]+)|(以后请[^。！]+)", text, re.IGNORECASE)) for seq, _, text in turns
    ]
    return [
        {"key": "answer_style", "content": f"{(m[1] or m[2]).capitalize()}.", "source_turns": [seq]}
        for seq, m in asked
        if m
    ]


def vector(text: str, dimensions: int) -> list[float]:
    """Hashed words and characters, not normalised: that is left to the caller."""
    values = [0.0] * dimensions
    for token in [*re.findall(r"\w+", text.lower()), *text[:4000]]:
        digest = hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=8).digest()
        weight = 3.0 if len(token) > 1 else 0.5
        for offset in (0, 3):
            place = int.from_bytes(digest[offset : offset + 3], "big") % dimensions
            values[place] += weight if digest[7] >> (offset // 3) & 1 else -weight
    if not any(values):
        values[0] = 1.0
    return values
