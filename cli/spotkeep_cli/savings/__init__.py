"""What spot capacity saved, and what checkpoints cost."""
