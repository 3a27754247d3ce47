"""The function that chooses the next trials of a sweep by TPE. Its dependencies, Optuna above all, are its own."""
