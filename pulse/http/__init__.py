"""The session engine over HTTP: routes, request bodies, problems. Needs the extra ``[http]``; nothing else does."""
