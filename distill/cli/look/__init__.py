"""`distill look`: what one model, or a teacher and its student, compute from one text, as a page."""
