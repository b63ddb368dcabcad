"""The program: settings are checked, planned, and run as stages in a run folder."""
