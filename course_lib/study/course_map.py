"""The map of the course: which notebook answers which question, and which of them are here.

The one idea: what is here is looked up, never written down, so the map cannot promise a notebook that is not there.
"""

from pathlib import Path

from IPython.display import Markdown

import course_lib

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


def course_map(folder: Path | None = None) -> Markdown:
    """A table of all notebooks of the course; those that lie in `folder` are links, the others are still to come.

    By default that is where the running notebook lies, or else the notebooks folder of the course.
    """
    here = notebooks_in(folder or Path.cwd())
    if folder is None and not here:  # executed somewhere else, as `course run` does
        here = notebooks_in(Path(course_lib.__file__).parents[1] / "notebooks")
    lines = ["| notebook | the question it answers |", "|---|---|"]
    for name, question in QUESTIONS.items():
        lines.append(
            f"| [{name}]({name}.ipynb) | {question} |" if name in here else f"| {name} (to come) | {question} |"
        )
    return Markdown("\n".join(lines))


def notebooks_in(folder: Path) -> set[str]:
    """The names of the notebooks of the course that lie in `folder`."""
    return {name for name in QUESTIONS if (folder / f"{name}.ipynb").is_file()}
