"""A session writer whose `POST /agui` runs the companion, for clients of AG-UI. Needs DATABASE_URL, migrated."""

from __future__ import annotations

import sys

from companion.agent import root_agent

from pulse import AdkAgent, Agent
from workers import load_settings, main_writer
from workers.adk import artifact_service, memory_service, session_service


def agents() -> dict[str, Agent]:
    """Return the agents by the names under which clients call them."""
    sessions, memory = session_service("hippocampus://"), memory_service("hippocampus://")
    artifacts = artifact_service("hippocampus://")
    return {"default": AdkAgent(root_agent, sessions, memory=memory, artifacts=artifacts)}


if __name__ == "__main__":
    sys.exit(main_writer(load_settings(), agents()))
