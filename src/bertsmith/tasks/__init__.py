"""Tasks as records: reader, head, label names, metrics."""
