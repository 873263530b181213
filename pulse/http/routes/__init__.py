"""The routes of sessions, events, state, runs and streams, with their schemas."""
