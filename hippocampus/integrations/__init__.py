"""Adapters to agent frameworks: a module for each, imported only where it is used, with an extra of its name.

`docs/frameworks.md` describes them.
"""
