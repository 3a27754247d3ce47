"""Judges a training command on this machine, without AWS, a job file or a deployment.

`spotkeep rehearse -- python train.py` runs the command twice and leaves it alone. It runs the command once more and
takes the machine away. A start afterwards finds the source and the checkpoint folder, as on AWS. The verdict is PASS,
FAIL or NOT JUDGED.

It needs Python 3.9 and the standard library. :mod:`.losses`, :mod:`.milestones`, :mod:`.files` and :mod:`.verdict`
decide and are pure. :mod:`.folders`, :mod:`.processes` and :mod:`.runs` act.
"""
