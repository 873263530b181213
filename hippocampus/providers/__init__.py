"""Providers: what stands between the memory and a model."""
