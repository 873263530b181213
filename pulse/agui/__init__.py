"""AG-UI: cursors, frames, messages and patches, as `pulse.event_bridge` puts them together. Needs the extra ``[http]``."""
