"""Providers: the adapters between the memory and a model."""
