"""What a process needs: signals, logs, supervision, and an end when its parent ends."""
