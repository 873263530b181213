"""Erasure on request, and the provenance that tells it what to reach."""
