"""The training itself, with its inputs, its process, its log, and the second tier of its checkpoints."""
