"""For users of Google ADK: its services by URL, and the import from its own database."""

from workers.adk.services import artifact_service, memory_service, register, session_service

__all__ = ["artifact_service", "memory_service", "register", "session_service"]
