"""The memory over HTTP: its routes with their schemas, and its problems. Needs the extra ``[http]``."""
