"""Pretraining data: pairs on disk, masks at load."""
