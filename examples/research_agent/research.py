"""An agent that researches: an OpenAPI service, a sandboxed calculation, a corpus and memory, on one PostgreSQL.

    eval "$(hippocampus up --detach)"     # a database, unless DATABASE_URL names one
    python examples/research_agent/research.py ann
    hippocampus down

Its model is a stand-in, so that it runs without a key. HIPPOCAMPUS_GENERATOR chooses another, such as
`openai:gpt-5.4-mini`, with the settings of docs/providers.md. Every step is an event of the session, every call a row:
`hippocampus tools log --app research`. A run is one trace, from its steps to the code in the sandbox: `hippocampus
traces --app research`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid

import catalogue
from scripted import ScriptedModel

from hippocampus import AgentExecutor, Hippocampus, ToolModel
from pulse import Sandbox, SessionKey, ToolContext, ToolRegistry, TracingManager, create_pool
from workers import load_settings, make_generator

APP = "research"
QUESTION = "How high are tides on average?"
METHOD = "# Means\n\nA mean height of tides is given in centimetres, with one decimal place.\n"


async def research(user: str, model: ToolModel) -> None:
    """Ask one question in a session of its own, and print every step."""
    async with await create_pool(os.environ["DATABASE_URL"]) as pool, Hippocampus(pool, app=APP) as memory:
        await memory.knowledge.put_corpus("methods")
        await memory.knowledge.add("methods", METHOD, source_uri="method.md", inline=True)
        sandbox = Sandbox(pool, APP)
        with catalogue.running() as url:
            async with ToolRegistry(pool, APP, sandbox=sandbox) as registry:

                async def recall(query: str, context: ToolContext) -> str:
                    """Return what is known of earlier work."""
                    found = await memory.search(context.user_id, query)
                    return "\n".join(each.content for each in found if each.source != "message") or "nothing"

                async def remember(fact: str, context: ToolContext) -> str:
                    """Keep a result for later."""
                    await memory.remember(context.user_id, fact)
                    return "kept"

                async def look_up(query: str, context: ToolContext) -> list[dict[str, str]]:
                    """Search the documents on methods."""
                    found = await memory.knowledge.search(query, user_id=context.user_id, limit=1)
                    return [{"source": hit.source_uri, "text": hit.content} for hit in found.hits]

                await registry.register_tool("look_up", look_up, nature="again")
                await registry.register_tool("recall", recall, nature="again")
                await registry.register_tool("remember", remember)
                await registry.register_sandbox_tool("calculate", description="Run Python; the last value is returned.")
                await registry.put_openapi("library", f"{url}/openapi.json", allowed_networks="127.0.0.0/8")

                key = SessionKey(APP, user, str(uuid.uuid4()))
                await memory.sessions.create_session(APP, user, session_id=key.session_id)
                result = await AgentExecutor(model, registry, max_steps=8).run(pool, key, QUESTION)
        session = await memory.sessions.get_session(*key)
        for event in session.events if session else ():
            show(event.event_type, event.content)
        print(f"{result.status} after {result.steps} steps and {result.tool_calls} calls")
        await sandbox.close()


async def main(user: str) -> None:
    """Research with the chosen model, or with the stand-in."""
    if "HIPPOCAMPUS_GENERATOR" not in os.environ:
        await research(user, ScriptedModel())
        return
    model = make_generator(load_settings())
    try:
        await research(user, model)  # type: ignore[arg-type]  # the executor refuses one that cannot call tools
    finally:
        await model.close()


def show(kind: str, content: object) -> None:
    """Print a step as one line."""
    fields = content if isinstance(content, dict) else {}
    if kind == "act":
        print(f"  act      {fields['tool_name']} {json.dumps(fields['tool_input'])}")
    elif kind == "observe":
        print(f"  observe  {fields['tool_name']}: {json.dumps(fields['observation'])[:110]}")
    elif kind == "thought":
        print(f"thought    {fields['content']}")
    elif kind in ("user_message", "assistant_message"):
        print(f"{'user' if kind == 'user_message' else 'agent'}       {fields['content']}"[:160])


if __name__ == "__main__":
    with TracingManager(APP, os.environ["DATABASE_URL"]):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "me"))
