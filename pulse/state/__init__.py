"""The state of a session: its history, and the overlay of one invocation."""
