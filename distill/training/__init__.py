"""Training a model of a step: on the corpus or on a task, from its checkpoint to the folder that is left."""
