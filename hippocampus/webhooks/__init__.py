"""Webhooks: where an app's events are sent, and what became of them. `workers.webhooks` sends them."""
