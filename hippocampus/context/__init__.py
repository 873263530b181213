"""Context windows: what they hold, and how candidates are packed into a token budget."""
