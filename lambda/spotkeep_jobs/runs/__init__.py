"""A run from its launch to its end. It is launched, compared with AWS's answers, moved to a fallback, and ended."""
