"""Memories in and out: files of a user's memory, and memories given from outside."""
