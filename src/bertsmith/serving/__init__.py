"""Answers over HTTP for every kind of model, and a page to try them."""
