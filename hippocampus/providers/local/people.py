"""The relatives and animals of a speaker: whom 'he', 'her name' and a first name mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hippocampus.providers.local import patterns_en
from hippocampus.text import words

_MENTION = re.compile(
    rf"\b(?:my|our|an?|another|the) (?:[a-z]+ ){{0,2}}?(?P<who>{patterns_en.KIN.replace('?P<about>', '?:')}"
    rf"|{patterns_en.ANIMAL})(?:s)?\b(?!['-])",
    re.IGNORECASE,
)
_ANIMAL = re.compile(rf"{patterns_en.ANIMAL}$", re.IGNORECASE)
_THING = re.compile(r"\bthe (?P<who>cat|dog|puppy|kitten|rabbit|hamster|horse|parrot) thing\b", re.IGNORECASE)
_PRONOUN = re.compile(
    r"^(?P<word>he's|she's|he is|she is|it's called|it is called|he|she|his name|her name|its name|they're called)\b",
    re.IGNORECASE,
)
_YOUR_KIN = re.compile(rf"\byour (?:[a-z]+ )?(?P<who>{patterns_en.KIN.replace('?P<about>', '?:')})\b", re.IGNORECASE)
#: A name within a question, not its first word.
_NAMED = re.compile(
    r"(?<=[a-z,'] )(?!I\b|I'|Mr|Mrs|Ms|Dr|Christmas|Easter|English|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday"
    r"|Sunday)[A-Z][a-z]+(?='s\b|[ ,?!.])|^(?!How|What|Who|Where|When|Why|Is|Are|Did|Do|Does|Has|Have|Can|Will|And|So"
    r"|Oh|The|Your|You|Which|That|This|It)[A-Z][a-z]+(?='s\b| still\b|\?| (?:ok|okay|well|home)\b)"
)
_MALE = frozenset(
    words.listed(
        "husband boyfriend son brother father dad grandpa grandfather uncle nephew grandson stepson grandad granddad"
        " stepdad papa boy father-in-law brother-in-law son-in-law godson"
    )
)
_FEMALE = frozenset(
    words.listed(
        "wife girlfriend daughter sister mother mom mum grandma grandmother aunt niece granddaughter stepdaughter"
        " stepmum stepmom gran nan nana mama girl mother-in-law sister-in-law daughter-in-law goddaughter"
    )
)


@dataclass(slots=True)
class People:
    """Who was mentioned; a pronoun refers to the last one of its turn, a name to whom it was given in the slice."""

    _last: str = ""
    _names: dict[str, str] = field(default_factory=dict)
    _asked: str = ""  # a name in a question that this turn answers

    def begin_turn(self, before: str = "", author: str = "") -> None:
        """Forget whom a pronoun may mean, but for a name or a relative that the turn before ends with.

        Args:
            before: the end of the turn before: 'How is Poppy?'
            author: whose turn begins; a question that names them speaks to them.
        """
        self._last = ""
        self._asked = ""
        if "?" not in before:
            return
        if asked := _YOUR_KIN.search(before):
            self._last = asked["who"].lower()
        elif named := [name for name in _NAMED.findall(before) if name != author]:
            self._asked = named[-1]
            self._last = self._names.get(named[-1], "")

    def note(self, topic: str, about: str, name: str) -> None:
        """Note a relative's or an animal's name."""
        if topic == "family:name" and about and name.istitle():
            self._names[name.split(maxsplit=1)[0]] = about

    def resolve(self, clause: str) -> str:
        """Return an English clause with 'my husband' for a 'he' or a name that means him."""
        first = clause.split(" ", 1)[0].removesuffix("'s")
        if first in self._names and not clause.startswith(("I ", "My ", "my ")):
            self._last = self._names[first]
            return re.sub(rf"^{re.escape(first)}", f"my {self._last}", clause, count=1)
        pronoun = _PRONOUN.match(clause)
        if pronoun and self._last and self._fits(pronoun["word"].lower()):
            return _spelled(pronoun["word"].lower(), self._last) + clause[pronoun.end() :]
        if pronoun and self._asked and not self._last and pronoun["word"].lower().startswith(("he", "she")):
            verb = re.search(r"(?:'s| is)$", pronoun["word"])
            return f"{self._asked}{verb[0] if verb else ''}{clause[pronoun.end() :]}"
        if mention := _THING.search(clause) or _MENTION.search(clause):
            self._last = mention["who"].lower()
        return clause

    def _fits(self, word: str) -> bool:
        if word.startswith(("it", "they")):
            return bool(_ANIMAL.match(self._last))
        if self._last in _MALE:
            return word.startswith(("he ", "he's", "his")) or word == "he"
        if self._last in _FEMALE:
            return word.startswith(("she", "her"))
        return True


def _spelled(word: str, who: str) -> str:
    if word.endswith("name"):
        return f"my {who}'s name"
    if word.endswith(("called",)):
        return f"my {who} is called"
    return f"my {who} is" if word.endswith(("'s", " is")) else f"my {who}"
