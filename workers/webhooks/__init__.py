"""Sending webhooks: the addresses that may be reached, the signatures, and one delivery's attempt."""
