"""Runs a script in fresh processes without the seconds of its imports.

`python -I fresh.py SCRIPT` imports the modules of SCRIPT once and forks a child for every request. A request is a line
of standard input, JSON `[input of the script, folder]`. The child writes its standard output and error to the files
`out` and `err` in the folder; its exit code is printed as a line of standard output.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

import transformers.models.bert.modeling_bert  # noqa: F401
from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: F401

for line in sys.stdin:
    script_input, folder = json.loads(line)
    if (child := os.fork()) == 0:
        os.chdir(folder)
        for name, stream in (("out", 1), ("err", 2)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
        with open("in", "w") as file:
            file.write(script_input)
        sys.stdin = open("in")
        try:
            runpy.run_path(sys.argv[1], run_name="__main__")
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
