"""Knowledge: corpora of documents that an app's agents search, beside what is remembered of users."""
