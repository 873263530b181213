"""Runs: one execution of an agent each, its records, events, heartbeat and runner."""
