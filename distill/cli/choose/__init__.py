"""`distill choose`: which encoder to start from, from a table with sources and from times on this machine."""
