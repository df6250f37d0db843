"""Small fixed data, and the scripts that made it."""
