"""The first paid hour in an account. Small jobs answer the questions that AWS's documentation leaves open."""
