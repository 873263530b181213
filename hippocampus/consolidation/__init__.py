"""Consolidation: from a slice of a conversation to stored memories and facts."""
