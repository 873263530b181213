"""The Pulse: threads, events and scoped state under optimistic concurrency, on PostgreSQL."""
