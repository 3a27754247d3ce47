"""The seams to AWS. Each calls one service, says its failures as errors of this library, and decides nothing."""
