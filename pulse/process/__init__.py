"""What belongs to the process: its background tasks, counts, garbage collection, and what is installed for it."""
