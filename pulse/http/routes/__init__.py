"""The routes of sessions, state, runs and streams. The schemas of `NOUN.py` are in `NOUN_schemas.py`."""
