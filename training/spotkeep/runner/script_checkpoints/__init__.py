"""What an interruption cut off among checkpoints that a script writes itself, found before the script starts.

`putting_aside` acts. `cut_off` decides, folder by folder: `files` has a table of the formats of single files, and the
modules of the libraries (`trainer`, `accelerate`, `distributed`, `orbax`, `keras`, `tensorflow`) say what a folder of
theirs must hold. Nothing is loaded or executed, and what cannot be judged stays.
"""
