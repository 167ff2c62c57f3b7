"""Measuring this machine: for ``bench`` beside a peer, for ``plan`` alone."""
