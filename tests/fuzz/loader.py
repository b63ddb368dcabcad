"""Loads model folders and predicts with them, each in a process of its own with limited time and memory.

A line of standard input is a folder and a file, separated by a tab. The process writes to the file what became of the
folder, and its exit status is printed. Nothing is computed before the processes are forked, because a fork has none of
the threads that compute.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback

import transformers.models.bert.modeling_bert  # noqa: F401
from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: F401

import distill.deploy.serve
from distill.errors import UserError

SECONDS, BYTES = 30, 8 * 2**30

for line in sys.stdin:
    folder, out = line.rstrip("\n").split("\t")
    if (child := os.fork()) == 0:
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        for stream in (1, 2):
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        try:
            distill.deploy.serve.load(folder).predict(["the small boat", ""])
            print("loaded", file=sys.stderr)
        except UserError as error:
            print("refused:", error, file=sys.stderr)
        except BaseException as error:
            traceback.print_exc()
            print("failed:", type(error).__name__, error, file=sys.stderr)
        sys.stderr.flush()
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
