"""Requests to servers that others name: to addresses that were checked, in bounded time and size."""
