"""The models that the settings name, and the gate before every call."""
