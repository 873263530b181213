"""Text: token counts and repetition."""
