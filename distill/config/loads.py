"""The loads under which models are timed and chosen."""

BATCH, SINGLE = "batch", "single"
LOADS = (BATCH, SINGLE)
