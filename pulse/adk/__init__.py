"""Google ADK's services on PostgreSQL: sessions and artifacts. The memory's is `hippocampus.adk`."""

from pulse.adk.artifacts import PostgresArtifactService

__all__ = ["PostgresArtifactService"]
