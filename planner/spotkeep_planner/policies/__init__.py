"""The policies, one a module, behind the interface of `spotkeep_planner.replay`."""
