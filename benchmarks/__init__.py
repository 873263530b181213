"""Measurements. Each prints ratios against a peer or the raw limit, taken in the same run on the same server."""
