"""The commands: one file a noun."""
