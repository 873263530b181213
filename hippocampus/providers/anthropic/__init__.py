"""Anthropic's Messages API, for text; it has no embedding models."""
