"""Runs `python -m spotkeep_rehearsal [options] -- command`."""

import sys

from spotkeep_rehearsal.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
