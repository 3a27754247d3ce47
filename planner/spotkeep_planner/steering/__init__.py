"""What steers a run that is under way: the hard guard and a solved policy as a table. Standard library only."""
