"""Model families, teachers, students, and the hooks that read features from them."""
