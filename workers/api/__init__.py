"""The HTTP API as one ASGI application."""
