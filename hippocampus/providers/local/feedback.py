"""Instructions by patterns: how a user asks the assistant to behave from now on, in English and Chinese.

    'Please always answer in French.'  ->  answer_language: "Always answer in French."
    '以后请用中文回答。'                ->  answer_language: "以后请用中文回答。"

Only the user's own turns count, and only sentences that are explicitly meant to last.
"""

from __future__ import annotations

import re

from hippocampus.providers.local import objects, sentences
from hippocampus.records import ConversationSlice, ExtractedProposal

#: Proposals of one slice.
PROPOSALS_MAX = 10
_CONTENT_CHARACTERS_MAX = 300

#: What the assistant does. Without such a verb, 'always' does not address the assistant.
_ACTS = (
    r"(?:answer|reply|respond|write|speak|talk|explain|use|give|keep|call|address|include|add|cite|show|start"
    r"|end|begin"
    r"|finish|ask|check|confirm|format|translate|summari[sz]e|be|avoid|make|mention|apologi[sz]e|remind|stop)"
)
_ENGLISH = (
    re.compile(
        r"^(?:please |can you |could you |would you |i want you to |i'd like you to )?"
        rf"(?P<request>(?:always|never) {_ACTS}\b.+)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"^(?:from now on|in (?:the )?future|going forward),? (?:please |can you |could you )?"
        rf"(?P<request>(?:always |never |do not |don't )?{_ACTS}\b.+)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"^(?:please |can you |could you )?(?P<request>(?:do not |don't )?{_ACTS}\b.+?),? "
        r"(?:from now on|in (?:the )?future|every time|going forward)[.!]*$",
        re.IGNORECASE,
    ),
)
_CHINESE = (
    re.compile("^(?:请|麻烦)?(?:你)?(?:以后|今后|从现在开始|从今以后)(?:都|就|一直)?[，,]?(?:请|麻烦|要|不要|别)"),
    re.compile("^(?:请|麻烦)(?:你)?(?:总是|始终|一直|永远|每次都|不要再|别再)"),
)
_TOPICS = (
    (
        "answer_language",
        re.compile(
            r"\bin (?:english|chinese|french|german|spanish|japanese|korean|italian|portuguese|russian|mandarin)\b"
            "|用(?:中|英|法|德|日|韩|俄|西班牙)(?:文|语)",
            re.IGNORECASE,
        ),
    ),
    (
        "answer_length",
        re.compile(
            r"\b(?:short|brief|concise|long|detail\w*|one sentence|few words)\b|简短|简洁|简单|详细", re.IGNORECASE
        ),
    ),
    (
        "form_of_address",
        re.compile(r"^(?:always |never |do not |don't )?(?:call|address) me\b|(?:叫|称呼)我", re.IGNORECASE),
    ),
    (
        "answer_format",
        re.compile(r"\b(?:bullet|list|table|markdown|heading|emoji)\w*\b|列表|表格|要点|表情", re.IGNORECASE),
    ),
)


def of_slice(slice_: ConversationSlice) -> list[ExtractedProposal]:
    """Return the requests of a slice in the order in which they were made; of one key, only the last."""
    found: dict[str, ExtractedProposal] = {}
    for turn in slice_.turns:
        if turn.author != "user":
            continue
        for sentence in sentences.of_turn(turn):
            request = None if sentence.is_question else _request(sentence.text, chinese=sentence.is_cjk)
            if request is not None:
                key = _key(request)
                found.pop(key, None)
                found[key] = ExtractedProposal(key=key, content=request, source_seqs=(turn.sequence_num,))
    return list(found.values())[:PROPOSALS_MAX]


def _request(text: str, *, chinese: bool) -> str | None:
    text = " ".join(text.replace("’", "'").split())
    if len(text) > _CONTENT_CHARACTERS_MAX:
        return None
    if chinese:
        return text if any(pattern.search(text) for pattern in _CHINESE) else None
    for pattern in _ENGLISH:
        if match := pattern.search(text):
            request = match["request"].rstrip(" .!,")
            return f"{request[0].upper()}{request[1:]}."
    return None


def _key(request: str) -> str:
    for topic, pattern in _TOPICS:
        if pattern.search(request):
            return topic
    return f"wish_{objects.slug(request)}"[:120]
