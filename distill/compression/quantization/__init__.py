"""Makes quantized files, simulates their rounding, and limits what they may lose."""
