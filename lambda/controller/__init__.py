"""The controller: one function that keeps every run's record and its capacity in line with what AWS says."""
