"""Models as the settings ask for them, and the gate before every call."""
