"""Files of conversations, read as a stream of turns: which format it is, whose turn, when, and what can't be read."""
