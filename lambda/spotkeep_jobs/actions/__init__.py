"""One thing done from beginning to end: the facts are fetched through the seams, a decision is carried out."""
