"""A local server with the parts of the Hugging Face hub's API that huggingface_hub uses; and a command."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast
from urllib.parse import unquote

import pytest

from tests.forked import PYTHON

TOKEN = "hf_of_the_test"
LARGE = (".safetensors", ".onnx")
"""Endings of files that are uploaded as large files."""
NEW = {".gitattributes": b"*.safetensors filter=lfs\n"}
"""Files of a new repository."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()


@dataclass
class Hub:
    """`repositories`: name -> file -> content. `commits`: name -> number of commits."""

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    commits: dict[str, int] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    broken: bool = False
    """Whether commits fail."""
    requests: int = 0
    cut: tuple[int, str] | None = None
    """Number of the request from which on connections are cut off, and whether that is `before` or `after` the hub has
    done what is asked."""

    def cuts(self, when: str) -> bool:
        """Whether the connection of the present request is cut off now."""
        self.requests += when == "before"
        return self.cut is not None and (self.requests > self.cut[0] or (self.requests, when) == self.cut)

    def create(self, request: dict[str, Any]) -> tuple[int, Any]:
        name = f"{request['organization']}/{request['name']}" if request.get("organization") else request["name"]
        if name in self.repositories:
            return 409, {"url": f"{self.url}/{name}"}
        self.repositories[name] = dict(NEW)
        self.private |= {name} if request.get("visibility") == "private" else set()
        return 200, {"url": f"{self.url}/{name}"}

    def revision(self, name: str) -> str:
        """A hash of the content, in the format of git's revisions."""
        files = sorted((file, sha256(content)) for file, content in self.repositories[name].items())
        return hashlib.sha1(json.dumps(files).encode()).hexdigest()

    def batch(self, request: dict[str, Any]) -> tuple[int, Any]:
        to = {item["oid"]: {"upload": {"href": f"{self.url}/large/{item['oid']}"}} for item in request["objects"]}
        return 200, {
            "transfer": "basic",
            "objects": [item | {"actions": to[item["oid"]]} for item in request["objects"]],
        }

    def preupload(self, name: str, request: dict[str, Any]) -> tuple[int, Any]:
        stored, files = self.repositories[name], []
        for path in (item["path"] for item in request["files"]):
            mode, content = "lfs" if path.endswith(LARGE) else "regular", stored.get(path)
            oid = None if content is None else {"lfs": sha256, "regular": git_hash}[mode](content)
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return 200, {"files": files}

    def commit(self, name: str, lines: list[dict[str, Any]]) -> tuple[int, Any]:
        if self.broken:
            return 507, {"error": "No room left."}
        for line in lines:
            value = line["value"]
            if line["key"] == "header" and value.get("parentCommit", self.revision(name)) != self.revision(name):
                return 412, {"error": "A commit has happened since."}
            if line["key"] == "file":
                self.repositories[name][value["path"]] = base64.b64decode(value["content"])
            if line["key"] == "lfsFile":
                self.repositories[name][value["path"]] = self.large[value["oid"]]
            if line["key"] == "deletedFile":
                del self.repositories[name][value["path"]]
        self.commits[name] = self.commits.get(name, 0) + 1
        revision = self.revision(name)
        return 200, {"commitUrl": f"{self.url}/{name}/commit/{revision}", "commitOid": revision}

    def posted(self, path: str, data: bytes) -> tuple[int, Any]:
        if path == "/api/repos/create":
            return self.create(json.loads(data))
        if path.endswith("/objects/batch"):
            return self.batch(json.loads(data))
        if path.endswith("/preupload/main"):
            return self.preupload(path.removeprefix("/api/models/").removesuffix("/preupload/main"), json.loads(data))
        if path.endswith("/commit/main"):
            name = path.removeprefix("/api/models/").removesuffix("/commit/main")
            return self.commit(name, [json.loads(line) for line in data.splitlines()])
        assert path == "/api/validate-yaml", path
        return 200, {"errors": [], "warnings": []}

    def listed(self, name: str, tree: bool) -> tuple[int, Any]:
        files = self.repositories.get(name)
        if files is None:
            return 404, {"error": "Repository not found"}
        if tree:
            return 200, [{"type": "file", "path": file, "size": len(c), "oid": sha256(c)} for file, c in files.items()]
        siblings = [{"rfilename": file} for file in files]
        return 200, {"id": name, "sha": self.revision(name), "private": name in self.private, "siblings": siblings}


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the header and the body in one packet: the second of two waits for an acknowledgement

    @property
    def hub(self) -> Hub:
        return cast(Hub, self.server.hub)  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None:
        pass

    def parse_request(self) -> bool:
        return super().parse_request() and not self.lost("before")

    def lost(self, when: str) -> bool:
        cut = self.hub.cuts(when)
        self.close_connection |= cut
        return cut

    def answer(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
        if self.lost("after"):
            return
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_PUT(self) -> None:
        data, name = self.body(), self.path.rpartition("/")[2]
        good = sha256(data) == name
        self.hub.large |= {name: data} if good else {}
        self.answer(200 if good else 400, {}, {"ETag": name})

    def do_POST(self) -> None:
        data = self.body()
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            self.answer(*self.hub.posted(unquote(self.path).partition("?")[0], data))
        else:
            self.answer(401, {"error": "Invalid username or password."})

    def do_GET(self) -> None:
        path = unquote(self.path).partition("?")[0]
        if path.endswith("/auth-check/write"):
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            self.answer(200 if allowed else 403, {} if allowed else {"error": "You may not write here."})
            return
        if path.startswith("/api/models/"):
            name = "/".join(path.removeprefix("/api/models/").split("/")[:2])
            if name in self.hub.private and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                name = ""
            self.answer(*self.hub.listed(name, "/tree/" in path), {"X-Error-Code": "RepoNotFound"})
            return
        name, _, file = path[1:].partition("/resolve/")
        content = self.hub.repositories.get(name, {}).get(file.partition("/")[2])
        if content is None:
            self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
        else:
            self.answer(200, content, {"ETag": f'"{sha256(content)}"', "X-Repo-Commit": self.hub.revision(name)})

    do_HEAD = do_GET


@pytest.fixture
def predicted(tmp_path: Path) -> Callable[[Path, Path], list[dict[str, Any]]]:
    """`predicted(folder, file)`: the lines that `python -m distill.predict` writes for a file."""

    def call(folder: Path, file: Path) -> list[dict[str, Any]]:
        command = [PYTHON, "-m", "distill.predict", str(folder), "--file", str(file)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return call


@contextmanager
def serve() -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    hub = Hub(f"http://127.0.0.1:{server.server_port}")
    server.hub = hub  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})  # how soon it shuts down
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A local hub in place of the real one, with a token that may write."""
    from huggingface_hub import constants

    with serve() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served
