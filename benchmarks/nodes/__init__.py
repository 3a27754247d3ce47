"""Measures of a training on several instances, beside torchrun's own restart and one rank (``make bench-nodes``)."""
