"""An embedded PostgreSQL with pgvector, for installations without a server."""
