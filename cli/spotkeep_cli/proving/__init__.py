"""Proves the deployment's permissions by taking them away: `spotkeep prove-permissions`."""
