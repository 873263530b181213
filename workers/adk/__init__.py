"""What Google ADK's users run: its services by URL, and the way over from its own database."""

from workers.adk.services import artifact_service, memory_service, register, session_service

__all__ = ["artifact_service", "memory_service", "register", "session_service"]
