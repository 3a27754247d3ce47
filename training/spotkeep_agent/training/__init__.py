"""The training itself: what it needs brought here, its process, its checkpoints' second tier, its log."""
