"""The prompts: Markdown files beside this module, each known by the hash of its bytes.

A prompt is sent unchanged, as the system instruction. Nothing is formatted into it: the conversation is a content part
of its own, so that braces in it have no meaning and orders in it remain data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Literal, TypeAlias

PromptName: TypeAlias = Literal["fast_replay", "deep_reflection", "repair", "answer", "rerank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The text of a prompt, and the SHA-256 (hex) of its file, which is stored with what the model produced."""

    text: str
    sha256: str


def load(name: PromptName) -> Prompt:
    """Read a prompt from the installed package.

    Raises:
        FileNotFoundError: the package was installed without its prompts.
        ValueError: the file is blank.
    """
    content = resources.files(__name__).joinpath(f"{name}.md").read_bytes()
    text = content.decode("utf-8").strip()
    if not text:
        raise ValueError(f"the prompt {name}.md is blank: install the package again")
    return Prompt(text=text, sha256=hashlib.sha256(content).hexdigest())
