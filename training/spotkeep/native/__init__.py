"""The compiled part, one routine in C for Linux on x86-64 and ARM. Elsewhere slower code does the same."""
