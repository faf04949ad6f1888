"""`torchrun` on the CPU part of PyTorch. What it starts must not load the stubs."""

import os
import sys

os.environ.pop("LD_PRELOAD")
os.environ.pop("PYTHONPATH")

from torch.distributed.run import main  # noqa: E402

sys.exit(main())
