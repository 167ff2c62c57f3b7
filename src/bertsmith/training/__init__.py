"""Optimiser, schedule, loop, checkpoints. Knows no BERT."""
