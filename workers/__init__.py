"""The processes: the only package that combines the others. No other package imports it."""
