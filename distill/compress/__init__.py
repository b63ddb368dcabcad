"""Makes trained models smaller: pruning, smaller vocabularies and quantization."""
