"""Facts: their keys, their elements, and the ledger of candidates and merges."""
