"""Metrics of the processes, where they are served, and how they are discovered."""
