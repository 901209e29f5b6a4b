"""Where things of the course lie, and which notebook a word on the command line means.

The one idea: the notebooks belong to a checkout of the course's repository. From an installed wheel there is a library
and this command, but nothing to open; then the commands that need notebooks say so.
"""

import difflib
import os
from pathlib import Path

import course_lib
from course_lib.commands.output import BAD_CALL, CommandError

FIRST_NOTEBOOK = "00_start_here"
FOLDERS = ("notebooks", "exercises")  # of a checkout, with what a learner opens


def checkout() -> Path | None:
    """The checkout that this library runs from, or None where it was installed without one."""
    root = Path(course_lib.__file__).absolute().parents[1]
    return root if (root / "notebooks").is_dir() and (root / "pyproject.toml").is_file() else None


def needed_checkout() -> Path:
    root = checkout()
    if root is None:
        raise CommandError(
            f"there is no notebooks folder beside {Path(course_lib.__file__).parent}",
            "get the whole course, not only its package, and run `python start.py` in it",
            BAD_CALL,
        )
    return root


def work_folder(root: Path, chosen: Path | None = None) -> Path:
    """Where a learner's copies lie: `chosen`, the folder in the variable COURSE_WORK, else work/ in the checkout."""
    named = chosen or os.environ.get("COURSE_WORK")
    folder = at_home(named).absolute() if named else root / "work"
    real, *originals_in = (Path(os.path.realpath(path)) for path in (folder, *(root / name for name in FOLDERS)))
    if real == Path(os.path.realpath(root)) or any(map(real.is_relative_to, originals_in)):
        raise CommandError(
            f"your copies cannot lie in {folder}: the originals do",
            "name another folder with --work or in COURSE_WORK",
            BAD_CALL,
        )
    return folder


def at_home(word: str | Path) -> Path:
    """The path that `word` means, where `~` is the user's home and `~name` that of another. Raises CommandError."""
    try:
        return Path(word).expanduser()
    except RuntimeError as error:
        raise CommandError(f"{word}: {str(error).rstrip('.')}", "write the whole path", BAD_CALL) from None


def short(path: Path) -> str:
    """`path` for a reader: relative to the current folder or to the home folder where that is shorter."""
    for base, mark in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base) and path != base:
            return mark + _printable(path.relative_to(base))
    return _printable(path)


def _printable(path: Path) -> str:
    """What no UTF-8 can say is written as an escape."""
    return str(path).encode(errors="backslashreplace").decode()


def is_notebook(path: Path) -> bool:
    return path.suffix == ".ipynb" and not any(part.startswith(".") for part in path.parts[-2:])


def originals(root: Path) -> list[Path]:
    """Every file of the course that a learner gets a copy of, in order."""
    found = (path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file())
    return sorted(
        path
        for path in found
        if not any(part.startswith((".", "__")) for part in path.relative_to(root).parts) and path.suffix != ".pyc"
    )


def find_original(word: str, root: Path) -> Path:
    """The one notebook of the course that `word` means: its path, its name, or how its name begins ("02").

    A name means a notebook before it means an exercise. Raises CommandError if there is none or more than one.
    """
    notebooks = [path for path in originals(root) if path.suffix == ".ipynb"]
    wanted = Path(word)
    for path in notebooks:
        if path in (wanted.absolute(), root / wanted):
            return path
    stem = wanted.name.removesuffix(".ipynb")
    for folder in FOLDERS:
        inside = [path for path in notebooks if path.is_relative_to(root / folder)]
        exact = [path for path in inside if path.stem == stem]
        matching = exact or [path for path in inside if stem and path.stem.startswith(stem)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise CommandError(f"{word} may be any of {_listed(matching)}", "type more of its name", BAD_CALL)
    near = difflib.get_close_matches(stem, [path.stem for path in notebooks], n=3)
    known = ", ".join(near or sorted(path.stem.partition("_")[0] for path in notebooks))
    raise CommandError(
        f"there is no notebook {word}", f"there is: {known}" if known else "the course has none yet", BAD_CALL
    )


def _listed(paths: list[Path]) -> str:
    return ", ".join(path.stem for path in paths[:4]) + (", …" if len(paths) > 4 else "")


def find_notebooks(words: list[str]) -> list[Path]:
    """The notebooks that are meant: files, all of a folder, or notebooks of the course; without a word, all of those.

    Raises CommandError if a word means none.
    """
    if not words:
        words = [str(needed_checkout() / "notebooks")]
    found: list[Path] = []
    for word in words:
        path, root = at_home(word), checkout()
        if path.is_dir():
            inside = sorted(filter(is_notebook, path.absolute().glob("*.ipynb")))
            if not inside:
                raise CommandError(f"there is no notebook in {word}", "name a notebook or another folder", BAD_CALL)
            found += inside
        elif path.exists():
            found.append(path.absolute())
        elif root is not None:
            found.append(find_original(word, root))
        else:
            raise CommandError(f"there is no file {word}", "name a notebook that exists", BAD_CALL)
    return list(dict.fromkeys(found))
