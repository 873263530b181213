"""The command line: one file per noun. `main` is the door."""
