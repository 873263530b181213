"""Benchmarks. Each prints ratios to a peer or to the raw limit, measured in the same run on the same server."""
