"""AG-UI: cursors, frames, messages, patches; `pulse.event_bridge` joins them. Needs the extra ``[http]``."""
