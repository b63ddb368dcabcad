"""Training of a step's models on the corpus or on a task: from the checkpoint they start from to the saved folder."""
