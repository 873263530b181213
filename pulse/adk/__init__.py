"""Google ADK's services on PostgreSQL: sessions and artifacts. The memory's is `hippocampus.adk`."""

from pulse.adk.artifacts import PostgresArtifactService
from pulse.adk.sessions import PostgresSessionService, SessionsPage

__all__ = ["PostgresArtifactService", "PostgresSessionService", "SessionsPage"]
