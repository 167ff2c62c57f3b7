"""One verb, one story."""
