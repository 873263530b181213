"""Code that nobody has read, run where it reaches nothing: no network, no file, no process, within limits."""
