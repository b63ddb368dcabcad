"""Artifacts that a user deploys: a Hugging Face folder and its variants, each proved to output the same logits."""
