"""The provider without a model: rules, word lists and hashed vectors."""
