"""Finds checkpoints of the script's own that an interruption cut off, before the script starts.

`putting_aside` finds them folder by folder, and acts. `files` has a table of the formats of single files. The modules
of the libraries (`trainer`, `accelerate`, `distributed`, `orbax`, `keras`, `tensorflow`) know the files that a
folder of theirs must hold. Nothing is loaded or executed, and a folder of unknown form stays.
"""
