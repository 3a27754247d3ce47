"""The CDK app. `cdk` runs it. The settings are in cdk.json, and docs/settings.md describes them."""

import sys
from pathlib import Path

from spotkeep_stacks.synthesis import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
