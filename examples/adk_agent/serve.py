"""A session writer whose `POST /agui` runs the companion, for clients of AG-UI. Needs DATABASE_URL, migrated."""

from __future__ import annotations

import sys

from companion.agent import root_agent

from pulse import AdkAgent, Agent
from workers import adk, settings
from workers.writer import main_writer


def agents() -> dict[str, Agent]:
    """Return the agents by the names under which clients call them."""
    sessions, memory = adk.session_service("hippocampus://"), adk.memory_service("hippocampus://")
    artifacts = adk.artifact_service("hippocampus://")
    return {"default": AdkAgent(root_agent, sessions, memory=memory, artifacts=artifacts)}


if __name__ == "__main__":
    sys.exit(main_writer(settings.load(), agents()))
