"""Sessions out of one database and into another."""
