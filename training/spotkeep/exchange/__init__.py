"""Checkpoints of other libraries. They are exported to and imported from, and nothing of them is executed.

`export_checkpoint` writes a checkpoint for `torch.distributed.checkpoint`, safetensors, `torch.load` or Orbax.
`import_checkpoint` makes a checkpoint from one of theirs. Torch and safetensors need not be installed.
"""

from .exports import Exported, export_checkpoint
from .imports import Imported, import_checkpoint

__all__ = ["Exported", "Imported", "export_checkpoint", "import_checkpoint"]
