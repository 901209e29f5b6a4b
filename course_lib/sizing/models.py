"""The models that the course knows by name. The numbers are in `presets.json`: for each, the fields of its config.json
that tell its cache, read by the same rules as any other config.
"""

import difflib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from course_lib.sizing.bytes import CacheShape
from course_lib.sizing.config import read_config, read_config_file
from course_lib.sizing.quantities import SizingError, shown


@cache
def _presets() -> dict[str, dict[str, Any]]:
    text = files("course_lib.sizing").joinpath("presets.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def model_names() -> list[str]:
    """The names that `preset` takes."""
    return list(_presets())


def preset_config(name: str) -> dict[str, Any]:
    """The fields of that model's config.json, as a dict of your own. Raises SizingError for an unknown name.

    Capital letters make no difference.
    """
    name = name.lower() if isinstance(name, str) else name
    if name not in _presets():
        near = difflib.get_close_matches(str(name).lower(), model_names(), n=4, cutoff=0.4)
        known = f"near: {', '.join(near)}" if near else f"there are {', '.join(model_names())}"
        raise SizingError(f"model = {name!r:.80} is not known by name; {known}", "model", name)
    config: dict[str, Any] = json.loads(json.dumps(_presets()[name]))
    return config


def preset(name: str) -> CacheShape:
    """The cache of a model that the course knows by name, in bf16."""
    return read_config(preset_config(name), name.lower())


def cache_shape(model: str | Path | Mapping[str, Any]) -> CacheShape:
    """The cache of a model: a name that the course knows, the fields of a config, or the path of a config.json, of a
    folder that has one, or of a GGUF file. In bf16; `stored_as` changes that.

    Raises SizingError for everything that is none of these, or whose fields do not tell the cache.
    """
    if isinstance(model, Mapping):
        return read_config(model)
    if not isinstance(model, str | Path):
        raise SizingError(f"model = {shown(model)} is no name, no path and no config", "model", model)
    if isinstance(model, str) and (model in _presets() or not os.path.lexists(os.path.expanduser(model))):
        return preset(model)
    return read_config_file(Path(model))
