"""What ``doctor`` looks at: raw corpora, prepared data, rows of tasks. Each check yields findings."""
