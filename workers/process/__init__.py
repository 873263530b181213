"""What a process needs: signals, logs, supervision, and the end with its parent."""
