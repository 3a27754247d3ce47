"""A run from its launch to its end: launched, reconciled with what AWS says, moved to its next fallback, ended."""
