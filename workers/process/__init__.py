"""What a process needs: signals, logs, supervision, a parent that it must not outlive."""
