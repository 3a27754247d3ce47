"""The function `launcher`: takes a job document (or a word about a run) and answers what became of it."""
