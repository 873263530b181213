"""Erasure on request, and the provenance of memories and facts."""
