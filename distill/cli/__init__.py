"""The commands: run, predict, label, compare, look, recipes and advise."""
