"""The events, trained steps and progress that a job reports in its log."""
