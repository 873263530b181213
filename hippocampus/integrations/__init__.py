"""Adapters to agents' frameworks: one module each, imported by itself, with the extra that its framework needs."""
