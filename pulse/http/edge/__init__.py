"""What every route shares: middleware, bodies, keys and roles, owners, pages, services, problems."""
