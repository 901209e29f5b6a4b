"""The notebooks of the course in their order, with the question that each answers.

The one idea: what is here is looked up, never written down, so nothing can promise a notebook that is not there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import course_lib

BUILDS_ON = re.compile(r"\bbuilds on notebooks? (?:\d\d(?:,| and|, and| to) )*(\d\d)\b")

QUESTIONS = {
    "00_start_here": "Does everything work, how do I use this, where am I?",
    "01_training_and_generation": "Why is training parallel and generation sequential?",
    "02_prefill_and_decode": "Why does the first token take so long, and the next ones a little each?",
    "03_the_kv_cache": "What exactly is stored, why is that enough, what does it not save?",
    "04_cache_sizing": "How many bytes, for which model, how many sequences fit, what does the estimate leave out?",
    "05_batches_and_slots": "How do sequences of different lengths share a cache without mixing?",
    "06_paged_cache_and_prefix_sharing": "Where does the memory go, and when may two requests share it?",
    "07_serving_under_load": "What happens to TTFT, TPOT and throughput when many people ask at once?",
    "08_shrinking_the_cache": "Fewer heads, fewer bits, fewer positions: what is saved, what does it cost?",
    "09_long_context_and_recall": "Does a longer context mean that the facts in it are used?",
    "10_reproducibility": "What may differ between two runs, and how do I tell rounding from a bug?",
    "11_real_systems": "How do Transformers, llama.cpp and vLLM do it, and how do I measure a real endpoint?",
    "12_speculative_decoding": "Can several tokens be had from one pass after all, without changing the answer?",
}


def notebooks_in(folder: Path) -> set[str]:
    """The names of the notebooks of the course that lie in `folder`."""
    return {name for name in QUESTIONS if (folder / f"{name}.ipynb").is_file()}


def way_to_notebooks() -> tuple[Path, str]:
    """The folder with the notebooks, and what a link in the running notebook begins with to lead there.

    They lie beside the running one, or near the exercise that it is; else they are those of the checkout that this
    library runs from, and the links are those of a notebook of the course, as `course build` runs it elsewhere.
    """
    for way in ("", "../../notebooks/"):
        if notebooks_in(Path.cwd() / way):
            return Path.cwd() / way, way
    return Path(course_lib.__file__).parents[1] / "notebooks", ""


def notebooks_here() -> set[str]:
    """The names of the notebooks in that folder."""
    return notebooks_in(way_to_notebooks()[0])


def exercises_near(notebooks: Path) -> dict[str, list[str]]:
    """The exercises that lie beside a folder of notebooks, by the number of the notebook that each belongs to:
    "03" → ["ex03_kv_cache"]."""
    found: dict[str, list[str]] = {}
    for path in sorted((notebooks.parent / "exercises").glob("ex[0-9][0-9]_*/*.ipynb")):
        if path.stem == path.parent.name:
            found.setdefault(belongs_to(path), []).append(path.stem)
    return found


def belongs_to(exercise: Path) -> str:
    """The number of the last notebook that an exercise says it builds on, or else its own number."""
    try:
        said = BUILDS_ON.search("".join(json.loads(exercise.read_bytes())["cells"][0]["source"]))
    except (OSError, ValueError, LookupError, TypeError):  # a learner's copy may be anything
        said = None
    return said[1] if said else exercise.stem[2:4]


def full_name(notebook: str) -> str:
    """The notebook of the course that is meant by "03" or a longer beginning. Raises ValueError if none is."""
    found = [name for name in QUESTIONS if notebook and name.startswith(notebook)]
    if len(found) != 1:
        raise ValueError(f"there is no notebook {ascii(notebook)[1:-1][:60]}: write 00 to {list(QUESTIONS)[-1][:2]}")
    return found[0]
