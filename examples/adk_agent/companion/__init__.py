"""ADK's command line looks for `root_agent` here."""

from companion.agent import root_agent

__all__ = ["root_agent"]
