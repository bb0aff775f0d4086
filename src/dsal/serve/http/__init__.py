"""What comes in over HTTP: access, bodies, routes, answers."""
