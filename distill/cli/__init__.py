"""The commands: run, predict, compare and advise."""
