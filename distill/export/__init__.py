"""What a user takes away: a Hugging Face folder and an ONNX file, each proved to give the same
logits.
"""
