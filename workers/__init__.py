"""The workers: the processes. The composition root; nothing imports it."""
