"""Raw text: corpora, sentences, vocabulary, tokenizer."""
