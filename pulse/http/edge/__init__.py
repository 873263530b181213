"""What every request passes: middleware, bodies, keys, roles, problems."""
