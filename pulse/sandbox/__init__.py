"""Runs code that no person has read, where it reaches nothing: no network, no file, no process, within limits."""
