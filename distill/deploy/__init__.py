"""What a user ships: exported folders, and loading them to predict."""
