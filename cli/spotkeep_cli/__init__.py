"""The command line, to launch a run, follow it, and see its result and its cost.

`main.py` registers the commands, one file each under `commands/`. Everything that reaches outside (AWS, the clock, the
local AWS) passes through `seams.py`. `rendering/` makes the printed text from plain values.
"""
