"""A service that answers with an exported model: `FOLDER=outputs/tickets/export/tickets uvicorn service:app`.

It needs the packages of the extra `serve`, fastapi and uvicorn. The model is loaded once, before the first request.
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import distill
from distill.errors import DataError

if not (folder := os.environ.get("FOLDER")):
    raise SystemExit("FOLDER: got nothing; must be a folder that a run exported; set FOLDER=outputs/NAME/export/NAME")
model = distill.load(folder, threads=int(os.environ.get("THREADS", "1")))
app = FastAPI(title=f"{model.backend} {model.scheme}")


@app.get("/health")
def health() -> dict[str, str]:
    """Which artifact answers. The model is loaded before the first request, so an answer means that it is ready."""
    return {"backend": model.backend, "scheme": model.scheme}


class Request(BaseModel):
    texts: list[str | list[Any]]


@app.post("/predict")
def predict(request: Request) -> list[dict[str, Any]]:
    """The prediction for each text. FastAPI calls it in a thread, and the runtimes compute without Python's lock."""
    try:
        return model.predict([tuple(text) if isinstance(text, list) else text for text in request.texts])
    except DataError as error:
        raise HTTPException(422, error.messages) from error
