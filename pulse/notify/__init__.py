"""LISTEN and NOTIFY: one connection that listens, one notifier that wakes the listeners."""
