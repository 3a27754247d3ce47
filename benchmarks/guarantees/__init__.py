"""What libraries of checkpoints keep of what a team relies on, each tried with the real library."""
