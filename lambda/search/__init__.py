"""The function that chooses the next trials of a sweep by TPE; its dependencies, Optuna above all, are its own."""
