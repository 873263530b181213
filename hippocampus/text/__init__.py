"""Text: words, token counts and repetition."""
