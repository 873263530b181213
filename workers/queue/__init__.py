"""The queue: procrastinate's app and worker, tasks, fencing, liveness, upkeep."""
