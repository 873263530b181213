"""The sample conversation that is part of the program."""

from __future__ import annotations

from pathlib import Path

import hippocampus
from workers.settings import SettingsError

SAMPLE = "mei.json"
#: Queries for it: a fact, a rule that was changed, a day that is spoken of as 'yesterday', in Chinese, in both.
SAMPLE_QUERIES = (
    "What is Mei allergic to?",
    "Is Friday fine for meetings?",
    "What did Mei do on 10 April?",
    "外婆的膝盖怎么样了？",
    "Mei 最喜欢的 tea 是什么",
)
SAMPLE_CONTEXT_QUERY = "Can we have a meeting on Friday, before 9, over coffee?"


def sample_path() -> Path:
    """Return the sample's file: inside the wheel, or in a checkout.

    Raises:
        SettingsError: it is not in this installation.
    """
    package = Path(next(iter(hippocampus.__path__)))
    for path in (package / "_examples" / SAMPLE, package.parent / "examples" / SAMPLE):
        if path.is_file():
            return path
    raise SettingsError(
        f"The sample conversation {SAMPLE} is not in this installation: give a file of your own, as in"
        " `hippocampus demo chats.jsonl`."
    )
