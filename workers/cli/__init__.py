"""The command line: one module per command in `commands`; `main` is the entry point."""
