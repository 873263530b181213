"""The processes, and the only rooms that put the others together. Nobody imports this package."""
