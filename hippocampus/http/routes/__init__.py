"""The routes of the memory. The schemas of `NOUN.py` are in `NOUN_schemas.py`."""
