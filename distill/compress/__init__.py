"""Making a trained model smaller without training."""
