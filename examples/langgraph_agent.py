"""A LangGraph agent that remembers its users in every thread: LangGraph's checkpointer and our store on one database.

    python examples/langgraph_agent.py ann monday "I love plum jam."
    python examples/langgraph_agent.py ann friday "Which jam do I love?"

DATABASE_URL names a migrated database (`hippocampus migrate`). In `answer`, call your model."""

import asyncio
import os
import sys
from uuid import uuid4

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime

from hippocampus import Hippocampus, user_label
from hippocampus.integrations.langgraph import HippocampusStore


async def answer(state: MessagesState, runtime: Runtime[str]) -> dict:
    said, notes = str(state["messages"][-1].content), ("users", user_label(runtime.context), "notes")
    found = await runtime.store.asearch(notes, query=said, limit=3)
    await runtime.store.aput(notes, str(uuid4()), {"text": said})
    known = "; ".join(item.value["text"] for item in found) or "nothing yet"
    return {"messages": [("ai", f"In this thread: {len(state['messages'])} messages. Of you I know: {known}")]}


async def main(user: str, thread: str, said: str) -> str:
    url = os.environ["DATABASE_URL"]
    async with Hippocampus(url, app="langgraph") as memory, AsyncPostgresSaver.from_conn_string(url) as checkpointer:
        await checkpointer.setup()
        builder = StateGraph(MessagesState, context_schema=str).add_node(answer).add_edge(START, "answer")
        graph = builder.compile(checkpointer, store=HippocampusStore(memory, index={"fields": ["text"]}))
        asked, config = {"messages": [("user", said)]}, {"configurable": {"thread_id": thread}}
        return (await graph.ainvoke(asked, config, context=user))["messages"][-1].content


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))
