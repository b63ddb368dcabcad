"""A service that answers with an exported model: `FOLDER=outputs/tickets/export/4x/tickets uvicorn service:app`.

It needs the packages of the extra `serve`, fastapi and uvicorn. The model is loaded once, before the first request.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

import distill
from distill.errors import ConfigError, DataError

MOST = 1000
"""Texts of a request. A client with more asks several times."""

if not (folder := os.environ.get("FOLDER")):
    raise SystemExit(
        "FOLDER: got nothing; must be a folder that a run exported; set FOLDER to the one that its last lines name"
    )
threads = os.environ.get("THREADS") or "1"
if not threads.isdecimal() or int(threads) < 1:
    raise SystemExit(f"THREADS: got {threads}; must be a number of threads, 1 or more; correct it")
try:
    model = distill.load(folder, threads=int(threads))
except (ConfigError, DataError) as error:
    raise SystemExit("\n".join(error.messages)) from error
record = model.folder / "distill.json"
version = hashlib.sha256(record.read_bytes()).hexdigest()[:12] if record.is_file() else "unknown"
app = FastAPI(title=f"{model.backend} {model.scheme}", docs_url=None, redoc_url=None)


@app.get("/health")
async def health() -> dict[str, str]:
    """Which model answers. It is loaded before the first request, so an answer means that it is ready. As it is async,
    it needs no thread, for which it would wait behind predictions."""
    return {"model": model.folder.name, "version": version, "backend": model.backend, "scheme": model.scheme}


class Body(BaseModel):
    # The model checks the items, and names the first that is wrong. Here each of them would be an error.
    texts: list[Any] = Field(max_length=MOST)


@app.exception_handler(RequestValidationError)
async def refused(request: Request, error: RequestValidationError) -> JSONResponse:
    """One line, without the text of the request."""
    first = error.errors()[0]
    return JSONResponse({"detail": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, 422)


@app.post("/predict")
def predict(body: Body) -> list[dict[str, Any]]:
    """The prediction for each text. FastAPI calls it in a thread, and the runtimes compute without Python's lock."""
    try:
        return model.predict([tuple(text) if isinstance(text, list) else text for text in body.texts])
    except DataError as error:
        raise HTTPException(422, error.messages) from error
