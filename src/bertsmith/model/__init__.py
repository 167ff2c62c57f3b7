"""BERT: embeddings, attention, encoder, heads."""
