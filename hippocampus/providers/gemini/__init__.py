"""Gemini: the provider, and the meaning of its errors."""
