"""PostgreSQL: pooled connections, named statements, JSON values, list cursors."""
