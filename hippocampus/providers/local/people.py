"""The relatives and animals of a speaker: whom 'he', 'her name' and a first name mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hippocampus.providers.local import objects, patterns_en, patterns_zh
from hippocampus.providers.local.sentences import Sentence
from hippocampus.records import ExtractedFact
from hippocampus.text import words

_MENTION = re.compile(
    rf"\b(?:my|our|an?|another|the) (?:[a-z]+ ){{0,2}}?(?P<who>{patterns_en.KIN.replace('?P<about>', '?:')}"
    rf"|{patterns_en.ANIMAL})(?:s)?\b(?!-|'(?!s (?:called|named|name is)\b))",
    re.IGNORECASE,
)
#: A relative or an animal, in a fact's text.
WHO = rf"{patterns_en.KIN.replace('?P<about>', '?:')}|{patterns_en.ANIMAL}"
_CALLED_EN = re.compile(
    rf"\b(?P<who>{WHO})\b(?:[^,.;]{{0,30}}?)(?:,? (?:called|named) |'s name is | is called )(?P<name>[A-Z][a-z]+)"
    rf"|\b(?P<kin>{WHO}),? (?P<apposed>[A-Z][a-z]+)\b"
)
_NO_NAME_ZH = "(?![在是当做叫今也都要给来去最刚已会很想有的其一不没说又还就过从跟和对])"
_CALLED_ZH = re.compile(
    "(?:叫|名为|起名)(?:做|作)?(?P<named>(?![我你他她它])[\u4e00-\u9fff]{1,3})(?=$|[，、的])"
    f"|(?:{patterns_zh.KIN.replace('?P<about>', '?:')}|徒弟|师傅|朋友|同桌|同学){_NO_NAME_ZH}"
    f"(?P<kin>[\u4e00-\u9fff]{{2}})"
    "(?=$|[，在是做今上开读考去来摆刚最都会给])"
)
_SHE_ZH = re.compile(
    "(?P<lead>(?:不过|而且|还有|然后|，|(?:不对|不是|[说写记讲弄搞]错了|更正)[，,。！ ]+(?:应该)?)?)"
    "(?P<pronoun>[他她])(?!们)"
)
_KIN_ZH = re.compile(f"我(?:的|家)?(?P<kin>{patterns_zh.KIN.replace('?P<about>', '?:')}|[妈爸姐哥弟妹](?!妈|爸|夫))")
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
_ABOUT_THEM = re.compile(
    r"^(?:\W*\w+\W+){0,6}(?:is|has|does|did|will|was|and|how's|where's) (?:she|he)\b[^?]*\?", re.IGNORECASE
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


def of_facts(known: Iterable[ExtractedFact]) -> dict[str, People]:
    """Return by speaker, '' for a user, whom the facts that hold name."""
    by_speaker: dict[str, People] = {}
    for fact in known:
        value = fact.value if isinstance(fact.value, dict) else {}
        text, subject = value.get("text"), str(value.get("subject", "user"))
        if isinstance(text, str) and fact.key.partition(":")[0] != "name":
            by_speaker.setdefault("" if subject == "user" else objects.slug(subject), People()).learn(text)
    return by_speaker


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
        if _ABOUT_THEM.search(before):
            return  # it goes on about the same person
        self._last = ""
        self._asked = ""
        if "?" not in before:
            return
        if asked := _YOUR_KIN.search(before):
            self._last = asked["who"].lower()
        elif named := [name for name in _NAMED.findall(before) if name != author]:
            self._asked = named[-1]
            self._last = self._names.get(named[-1], "")

    def continued(self, sentence: Sentence) -> Sentence:
        """Return a Chinese sentence with the relative of the turn's last sentence for the 'she' that it begins"
        " with."""
        text = sentence.text
        spoken = _SHE_ZH.match(text)
        if spoken and self._last and patterns_zh.may_mean(spoken["pronoun"], self._last):
            return replace(sentence, text=f"{spoken['lead']}我{self._last}{text[spoken.end() :]}")
        if mentions := [match["kin"] for match in _KIN_ZH.finditer(text)]:
            self._last = mentions[0] if len(set(mentions)) == 1 else ""
        return sentence

    def learn(self, text: str) -> None:
        """Learn the names that a fact gives people and animals: 'has a dog named Rex', '养了一只猫，叫团子'."""
        chinese = words.CJK_CHARACTER.search(text) is not None
        if chinese:
            for match in _CALLED_ZH.finditer(text):
                self._names.setdefault(match["named"] or match["kin"], "")
            return
        for match in _CALLED_EN.finditer(text):
            self._names.setdefault(match["name"] or match["apposed"], (match["who"] or match["kin"] or "").lower())

    def named_at(self, clause: str) -> str:
        """Return the known name that a clause begins with, or nothing."""
        return next(
            (
                name
                for name in self._names
                if clause.startswith(name) and (not name.isascii() or not clause[len(name) : len(name) + 1].isalnum())
            ),
            "",
        )

    @property
    def last(self) -> str:
        """The relative or the name that a pronoun may mean."""
        return self._last or self._asked

    def knows(self, name: str) -> bool:
        """Return whether a name was given to somebody."""
        return name in self._names

    def kin_called(self, name: str) -> str:
        """Return which relative or animal a name was given to, or nothing."""
        return self._names.get(name, "")

    def note(self, topic: str, about: str, name: str) -> None:
        """Note a relative's or an animal's name."""
        if topic == "family:name" and about and name.istitle():
            self._names[name.split(maxsplit=1)[0]] = about

    def resolve(self, clause: str) -> str:
        """Return an English clause with 'my husband' for a 'he' or a name that means him."""
        first = clause.split(" ", 1)[0].removesuffix("'s")
        if re.match(rf"{re.escape(first)} and I\b", clause):
            return clause
        if self._names.get(first) and not clause.startswith(("I ", "My ", "my ")):
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

    def mention(self, sentence: Sentence) -> None:
        """Note whom an English sentence that states nothing mentions: 'My wife says no. She is a diplomat.'"""
        if not sentence.is_cjk:
            self.resolve(sentence.text)

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
