"""Steps of filters over streams, one observation at a time."""
