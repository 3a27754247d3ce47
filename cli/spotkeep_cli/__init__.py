"""What a person types: launch a run, follow it, see what it did and what it cost.

`main.py` registers the commands, one file each under `commands/`. Everything that reaches outside (AWS, the clock, the
local AWS) passes through `seams.py`. What is printed is made in `rendering/` from plain values.
"""
