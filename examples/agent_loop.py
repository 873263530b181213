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
import sys

from hippocampus import ContextAssembler, LocalEmbedder, format_items
from pulse import Event, OpenSessionService, create_pool

APP = "agent-loop"
INSTRUCTIONS = "You are a helpful assistant. Use what you know of the user."


def answer(context: str, message: str) -> str:
    """Stand in for a model: a real one gets the context as its instructions, and the message."""
    words = {word.strip(".,!?").lower() for word in message.split() if len(word) > 3}
    known = [line for line in context.splitlines() if words & {word.strip(".,!?:").lower() for word in line.split()}]
    other = [line.strip("- ") for line in known if message not in line]
    return f"As far as I remember: {other[0]}" if other else "Noted."


async def talk(user: str) -> None:
    """One session: each turn is stored, answered from a packed context, and stored again."""
    async with await create_pool(os.environ["DATABASE_URL"]) as pool:
        sessions = OpenSessionService(pool)
        assembler = ContextAssembler(pool, LocalEmbedder(), language="en")
        session = await sessions.create_session(APP, user)
        while message := (await asyncio.to_thread(sys.stdin.readline)).strip():
            window = await assembler.assemble(
                app_name=APP,
                user_id=user,
                session_id=session.id,
                query=message,
                system_prompt=INSTRUCTIONS,
                max_tokens=2000,
            )
            await sessions.append_event(session, Event(author="user", content={"text": message}))
            reply = answer(format_items(window.items, window.language), message)
            await sessions.append_event(session, Event(author="model", content={"text": reply}))
            print(reply, flush=True)
        # The session has ended: memories and facts are extracted from it.
        await sessions.finalize_session(APP, user, session.id)
        await sessions.close()


if __name__ == "__main__":
    asyncio.run(talk(sys.argv[1] if len(sys.argv) > 1 else "me"))
