"""Agents of this engine's own: thought, call, observation, on runs that another process can take up."""
