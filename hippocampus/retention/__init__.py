"""Retention: forgetting curves, policies, the archive, and advice about them."""
