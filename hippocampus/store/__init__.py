"""A key-value store beside the memory: items are replaced by key, returned exactly, and never fade."""
