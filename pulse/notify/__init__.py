"""LISTEN and NOTIFY: one connection that listens, one notifier that announces what was committed."""
