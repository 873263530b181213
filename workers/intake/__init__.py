"""Files of conversations, read as a stream of turns: their format, speakers and times, and what can't be read."""
