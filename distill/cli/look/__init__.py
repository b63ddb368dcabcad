"""`distill look`: what a model, or a teacher and its student, compute from one text, as a page."""
