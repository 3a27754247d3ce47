"""What is compiled: one routine in C, for Linux on x86-64 and ARM. Where it is not, others take longer for the same."""
