"""An agent without a framework that remembers across sessions.

    eval "$(hippocampus up --detach)"     # the workers, and a database unless DATABASE_URL names one
    python examples/agent_loop.py ann
    hippocampus down

Say something about yourself, end with an empty line, start it again, and ask. The model is a stand-in that quotes its
context, so that the example runs without a key: call yours in `answer`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from uuid import uuid4

from hippocampus import Hippocampus

APP = "agent-loop"
COMMON = set("the and for are was does did what where when who how which you your user assistant can have has".split())
INSTRUCTIONS = "You are a helpful assistant. Use what you know of the user."


def answer(context: str, message: str) -> str:
    """Stand in for a model: a real one gets the context as its instructions, and the message."""
    if not message.endswith("?"):
        return "Noted."
    asked = words_of(message)
    known = [line.strip("- ") for line in context.splitlines() if not line.endswith("?")]
    best = max(known, key=lambda line: len(asked & words_of(line)), default="")
    return f"As far as I remember: {best}" if asked & words_of(best) else "I do not know that yet."


def words_of(text: str) -> set[str]:
    """Return the words that carry meaning."""
    words = re.findall(r"\w+", text.lower())
    return {word.removesuffix("s") for word in words if len(word) > 2} - COMMON


async def talk(user: str) -> None:
    """One session: each message is answered from a packed context, and stored with its answer."""
    session = str(uuid4())
    async with Hippocampus(os.environ["DATABASE_URL"], app=APP, language="en") as memory:
        while message := (await asyncio.to_thread(sys.stdin.readline)).strip():
            window = await memory.context(user, message, session=session, system_prompt=INSTRUCTIONS, max_tokens=2000)
            reply = answer(window.text, message)
            said = [{"role": "user", "content": message}, {"role": "assistant", "content": reply}]
            await memory.add(user, said, session=session)
            print(reply, flush=True)
        if await memory.sessions.get_session(APP, user, session) is not None:
            # The session has ended: workers extract memories and facts from it now, not after its idle time.
            await memory.sessions.finalize_session(APP, user, session)


if __name__ == "__main__":
    asyncio.run(talk(sys.argv[1] if len(sys.argv) > 1 else "me"))
