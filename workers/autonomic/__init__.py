"""The role `pulse`: watchers, the tick loop, and the executors of effects."""
