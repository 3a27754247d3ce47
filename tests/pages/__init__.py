"""The commands and the outputs that pages show, run and compared."""
