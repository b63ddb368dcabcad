"""Text to batches: tasks, corpora, token ids, padding and masking."""
