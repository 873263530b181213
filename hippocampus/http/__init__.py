"""The memory over HTTP: search, context, memories, facts, jobs, retention. Needs the extra ``[http]``."""
