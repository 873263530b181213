"""Google ADK's services on PostgreSQL: sessions and artifacts. The memory's is `hippocampus.adk`."""
