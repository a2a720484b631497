"""A file of a model says that cgp is to be imported before Keras loads it."""

import json
import os
import shutil
import zipfile
from typing import Any

REMEDY = "import cgp before keras.models.load_model, or load the file with cgp.load_model"


def name_package(path: str | os.PathLike[str]) -> None:
    """Writes into a `.keras` file of a class of cgp, just written, which package it needs.

    Keras names what it cannot locate by `class_name`, and locates it by `registered_name`; files
    with the plain name, as earlier versions wrote them, load as these do.

    Args:
        path: The file, which is replaced.
    """
    with zipfile.ZipFile(path) as archive:
        contents = {name: json.loads(archive.read(name)) for name in _NOTED}
    config, metadata = contents["config.json"], contents["metadata.json"]
    if not str(config.get("registered_name")).startswith("cgp"):
        return
    config["class_name"] = f"{config['class_name']} of the package cgp ({REMEDY})"
    metadata["needs"] = f"the package cgp: {REMEDY}"
    plain = f"{os.fspath(path)}.plain"
    os.rename(path, plain)
    _copy(plain, path, contents)
    os.remove(plain)


_NOTED = ("config.json", "metadata.json")


def _copy(path: str, to: str | os.PathLike[str], contents: dict[str, Any]) -> None:
    """Copies an archive, with other contents of some of its JSON files."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(to, "w") as copy:
        for member in archive.infolist():
            if member.filename in contents:
                copy.writestr(member, json.dumps(contents[member.filename]))
                continue
            with archive.open(member) as source, copy.open(member, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, 2**20)
