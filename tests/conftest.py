"""What every test shares: no network, few threads, and one cache kept between test sessions.

The cache holds what is slow to make and depends only on installed packages: harvested docstrings,
font lists.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Set before torch, transformers or matplotlib is imported; every process a test starts inherits it.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
os.environ["XDG_CACHE_HOME"] = str(ROOT / ".pytest_cache" / "xdg")
os.environ["HF_HOME"] = str(ROOT / ".pytest_cache" / "xdg" / "huggingface")
os.environ.setdefault("OMP_NUM_THREADS", "2")
for name in ("HYDRA_FULL_ERROR", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
    os.environ.pop(name, None)
