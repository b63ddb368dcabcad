"""A Python whose processes start at once: they are forks of a server that has imported what distill imports.

`PYTHON` is an executable that takes `-P`, `-m MODULE`, `-c CODE` or a script, as Python does. A process has the
streams, the folder, the environment, the signals and the exit code of a real one. Processes that it starts are such
processes too. Tests of what is different need `sys.executable`: its parent is the server; its modules are imported, so
that it does not read the environment as imports do; all processes have one hash seed; and it ends without freeing what
it has.

    python forked.py serve SOCKET     # imports, then forks a process for each request
    python forked.py run SOCKET ...   # what PYTHON is: requests a process, forwards signals, ends as it does
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
IMPORTED = (
    *("distill.cli.run", "distill.pipeline.stages", "distill.pipeline.context", "distill.pipeline.collect"),
    *("distill.pipeline.validation.preflight", "distill.pipeline.train_steps.tasks", "distill.cli.predict"),
    *("distill.pipeline.train_steps.corpus", "distill.models.teacher.random", "distill.deploy.export.quantized"),
    *("transformers.models.bert.modeling_bert", "torch.distributed.launcher.api", "onnxruntime", "matplotlib.figure"),
)

if __name__ != "__main__":
    _folder = tempfile.TemporaryDirectory(prefix="forked-")
    _socket = Path(_folder.name, "socket")
    PYTHON = str(Path(_folder.name, "python"))
    """The executable. It starts the server when it is first used."""
    _words = f'"{sys.executable}" {{}} "{__file__}"'
    Path(PYTHON).write_text(
        f"#!/bin/sh\n[ -S '{_socket}' ] || {_words.format('-P')} serve '{_socket}' >/dev/null 2>&1 3>&1 &\n"
        f"exec {_words.format('-I -S')} run '{_socket}' \"$@\"\n"
    )
    Path(PYTHON).chmod(0o700)
    os.environ["PYTHON_EXEC"] = PYTHON  # of the processes that torchrun starts


def run(place: str, *words: str) -> None:
    """Have the server start a process, and end as the process does."""
    files = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_inherited(number)]
    with socket.socket(socket.AF_UNIX) as server:
        while server.connect_ex(place) != 0:
            select.select([], [], [], 0.05)
        request = json.dumps([words, os.getcwd(), dict(os.environ), os.umask(0), files]).encode()
        socket.send_fds(server, [len(request).to_bytes(8)], files)
        server.sendall(request)
        for number in FORWARDED:
            signal.signal(number, lambda number, _: server.sendall(bytes([number])))
        code = int.from_bytes(server.recv(4), signed=True)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_inherited(number: int) -> bool:
    with suppress(OSError):
        return os.get_inheritable(number)
    return False


def serve(place: str) -> list[str]:
    """Fork a process for each request. Returns in these processes alone: the words of their command."""
    import gc
    import importlib

    sys.executable = str(Path(place).with_name("python"))
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}.new")
        listener.listen()
        os.rename(f"{place}.new", place)
        while Path(place).exists():
            if not select.select([listener], [], [], 1.0)[0]:
                continue
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return _requested(client)
            client.close()
    os._exit(0)


def _requested(client: socket.socket) -> list[str]:
    """Fork the process that a client requests and watch it. Returns in it alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, received, _, _ = socket.recv_fds(client, 8, 100)
    request = b""
    while len(request) < int.from_bytes(length):
        request += client.recv(1 << 16)
    words, folder, environment, umask, files = json.loads(request)
    if (process := os.fork()) == 0:
        client.close()
        received = [fcntl.fcntl(file, fcntl.F_DUPFD, 500) for file in received]
        for file, number in zip(received, files, strict=True):
            os.dup2(file, number)
            os.close(file)
        os.umask(umask)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            errors = "backslashreplace" if name == "stderr" else "strict"
            stream = open(number, "w" if number else "r", encoding="utf-8", errors=errors, closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        return list(words)
    for file in received:
        os.close(file)
    ended = os.pidfd_open(process)
    while ended not in (ready := select.select([client, ended], [], [])[0]):
        if client in ready:
            number = client.recv(1)
            os.kill(process, number[0] if number else signal.SIGKILL)  # it is gone
            if not number:
                break
    status = os.waitpid(process, 0)[1]
    with suppress(OSError):
        client.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
    os._exit(0)


def execute(words: list[str]) -> None:
    """Do what Python does with the words of a command, and end. It takes a second to free all that is imported."""
    import atexit
    import threading

    code: Any = 0
    try:
        _run(words)
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run(words: list[str]) -> None:
    import runpy

    safe = bool(os.environ.get("PYTHONSAFEPATH"))
    while words[0].startswith("-") and words[0] not in ("-m", "-c"):  # other options make no difference here
        safe |= words.pop(0) == "-P"
    how, *rest = words
    if how not in ("-m", "-c"):
        sys.argv = [how, *rest]
        sys.path[:0] = [] if safe else [str(Path(how).resolve().parent)]
        runpy.run_path(how, run_name="__main__")
        return
    sys.path[:0] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    what, *rest = rest
    sys.argv = [how, *rest]
    sys.path[:0] = [] if safe else [os.getcwd() if how == "-m" else ""]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        main: Any = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(what, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    command, place, *given = sys.argv[1:]
    if command == "run":
        run(place, *given)
    words = serve(place)
    for number in (*FORWARDED, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    execute(words)
