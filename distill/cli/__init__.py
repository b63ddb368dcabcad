"""The commands: run, predict, label, compare, look, recipes, choose and advise."""
