"""Live streams of runs and threads."""
