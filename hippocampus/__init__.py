"""The Hippocampus: summaries, facts and insights drawn from sessions, searched, packed into context, forgotten."""
