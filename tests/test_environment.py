"""Three files say what gets installed: pyproject.toml (ranges), constraints.txt and environment.yml (exact versions).

Each rule is a function from what the files say to a list of complaints, so that a damaged copy shows that it can fail.
What cannot be checked here: whether conda-forge has these versions and can solve for them, for channels cannot be asked
offline. What is checked is that conda would read the file, and that it says the same as the other two.
"""

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rattler import MatchSpec, Version, VersionSpec

ROOT = Path(__file__).resolve().parents[1]

CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # every other package is called the same
NOT_FROM_CONDA = {"gguf"}  # so pip installs it into the conda environment
ONLY_ELSEWHERE = {"appnope", "colorama", "pywinpty"}  # macOS, Windows
CUDA = re.compile(r"nvidia-|cuda-|triton")  # packages of torch's CUDA build: torch pins them, and only on Linux


@dataclass
class Environment:
    """What the files say, and what is installed where the tests run."""

    python: str
    runtime: dict[str, Requirement]
    test: dict[str, Requirement]
    pins: dict[str, str]
    conda: list[str]
    pip: list[str]
    installed: dict[str, str]

    @property
    def direct(self) -> dict[str, Requirement]:
        return {**self.runtime, **self.test}


def by_name(lines: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def read_pins(text: str) -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def read_environment() -> Environment:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    return Environment(
        python=project["requires-python"],
        runtime=by_name(project["dependencies"]),
        test=by_name(project["optional-dependencies"]["test"]),
        pins=read_pins((ROOT / "constraints.txt").read_text(encoding="utf-8")),
        conda=[entry for entry in conda if isinstance(entry, str)],
        pip=[line for entry in conda if isinstance(entry, dict) for line in entry["pip"]],
        installed=installed_packages(),
    )


def installed_packages() -> dict[str, str]:
    """Versions by name: of two copies the one that is imported, so what lies inside another package is not meant."""
    found: dict[str, str] = {}
    for package in importlib.metadata.distributions():  # in the order in which Python looks
        found.setdefault(canonicalize_name(package.name), package.version)
    return found


# --- the rules --------------------------------------------------------------------------------------------------------


def pins_outside_their_range(found: Environment) -> list[str]:
    """Every direct dependency has an exact version, one that its range admits."""
    return [
        f"{name}: pinned to {found.pins.get(name)}, wanted {requirement.specifier}"
        for name, requirement in found.direct.items()
        if name not in found.pins or not requirement.specifier.contains(found.pins[name], prereleases=True)
    ]


def pins_that_force_a_system(found: Environment) -> list[str]:
    """A local version (+cpu) or a CUDA package would force one build of torch on everybody."""
    return [f"{name}=={pin}" for name, pin in found.pins.items() if "+" in pin or CUDA.match(name)]


def unpinned_indirect_dependencies(found: Environment) -> list[str]:
    """Whatever is installed because of a dependency is pinned too, however far down."""
    seen: set[str] = set()
    waiting = [(name, requirement.extras) for name, requirement in found.direct.items()]
    while waiting:
        name, extras = waiting.pop()
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            inner = canonicalize_name(requirement.name)
            needed = [requirement.marker is None or requirement.marker.evaluate({"extra": e}) for e in extras or {""}]
            if any(needed) and inner not in seen and not CUDA.match(inner):
                seen.add(inner)
                waiting.append((inner, requirement.extras))
    return sorted(seen - set(found.pins))


def pins_of_nothing(found: Environment) -> list[str]:
    """A pin that no installed package answers to is a leftover (or a misspelling, which would pin nothing)."""
    return sorted(set(found.pins) - set(found.installed) - ONLY_ELSEWHERE)


def installed_otherwise(found: Environment) -> list[str]:
    """The tests run with the versions that the course promises; +cpu names a build of one, not another version."""
    return [
        f"{name}: installed {found.installed.get(name)}, pinned {found.pins.get(name)}"
        for name in found.direct
        if found.installed.get(name, "").split("+")[0] != found.pins.get(name)
    ]


def unreadable_by_conda(found: Environment) -> list[str]:
    """Every line is one that conda understands, with an exact version; only pip itself has none."""
    complaints = []
    for line in found.conda:
        try:
            spec = MatchSpec(line)
        except Exception as error:  # rattler has an exception for each way to misspell
            complaints.append(f"{line}: {error}")
            continue
        if spec.name is None or (spec.version is None and spec.name.normalized != "pip"):
            complaints.append(f"{line}: no version")
    return complaints


def conda_differs(found: Environment) -> list[str]:
    """environment.yml has each runtime dependency at its pinned version, and nothing else but Python and pip."""
    split = [re.split("=+", line, maxsplit=1) for line in found.conda]
    versions = {parts[0]: parts[1] if len(parts) == 2 else "" for parts in split}
    expected = {
        CONDA_NAMES.get(name, name): found.pins.get(name, "no pin")
        for name in found.runtime
        if name not in NOT_FROM_CONDA
    }
    actual = {name: version for name, version in versions.items() if name not in ("python", "pip")}
    complaints = [
        f"{name}: environment.yml {actual.get(name)}, constraints.txt {expected.get(name)}"
        for name in sorted({*expected, *actual})
        if actual.get(name) != expected.get(name)
    ]
    if not VersionSpec(found.python).matches(Version(versions.get("python", "0"))):
        complaints.append(f"python {versions.get('python')} does not satisfy {found.python}")
    return complaints


def pip_section_differs(found: Environment) -> list[str]:
    """pip brings what conda-forge lacks, at its pinned version, and then the course itself."""
    expected = {f"{name}=={found.pins.get(name)}" for name in NOT_FROM_CONDA} | {"-e ."}
    return sorted(expected ^ set(found.pip))


# --- the rules hold, and each can fail --------------------------------------------------------------------------------

Rule = Callable[[Environment], list[str]]


def drop_pin(found: Environment) -> None:
    del found.pins["numpy"]


def pin_old_torch(found: Environment) -> None:
    found.pins["torch"] = "2.10.0"


def pin_cpu_torch(found: Environment) -> None:
    found.pins["torch"] += "+cpu"


def pin_cuda(found: Environment) -> None:
    found.pins["nvidia-cublas"] = "13.1.0"


def drop_indirect_pin(found: Environment) -> None:
    del found.pins["markupsafe"]  # needed by jinja2


def misspell_pin(found: Environment) -> None:
    found.pins["jupyterlap"] = "4.6.6"


def install_other_version(found: Environment) -> None:
    found.installed["rich"] = "14.0.0"


def break_spec(found: Environment) -> None:
    found.conda[found.conda.index("python=3.11")] = "python=>3..11"


def drop_conda_version(found: Environment) -> None:
    found.conda = [line.split("=")[0] if line.startswith("numpy") else line for line in found.conda]


def drop_conda_package(found: Environment) -> None:
    found.conda = [line for line in found.conda if not line.startswith("pytorch")]


def use_the_name_that_pip_uses(found: Environment) -> None:
    found.conda = [line.replace("pytorch=", "torch=") for line in found.conda]


def add_conda_package(found: Environment) -> None:
    found.conda.append("scipy=1.17.0")


def old_python(found: Environment) -> None:
    found.conda[found.conda.index("python=3.11")] = "python=3.10"


def forget_the_course(found: Environment) -> None:
    found.pip.remove("-e .")


def other_gguf(found: Environment) -> None:
    found.pip = [line.replace("gguf==", "gguf==9") for line in found.pip]


DAMAGE: dict[Rule, list[Callable[[Environment], None]]] = {
    pins_outside_their_range: [drop_pin, pin_old_torch],
    pins_that_force_a_system: [pin_cpu_torch, pin_cuda],
    unpinned_indirect_dependencies: [drop_indirect_pin],
    pins_of_nothing: [misspell_pin],
    installed_otherwise: [install_other_version, pin_old_torch],
    unreadable_by_conda: [break_spec, drop_conda_version],
    conda_differs: [pin_old_torch, drop_conda_package, use_the_name_that_pip_uses, add_conda_package, old_python],
    pip_section_differs: [forget_the_course, other_gguf],
}


@pytest.fixture(scope="module")
def found() -> Environment:
    return read_environment()


@pytest.mark.parametrize("rule", DAMAGE, ids=lambda rule: rule.__name__)
def test_no_file_has(rule: Rule, found: Environment) -> None:
    assert rule(found) == []


@pytest.mark.parametrize(
    ("rule", "damage"),
    [pytest.param(rule, hit, id=f"{rule.__name__}-{hit.__name__}") for rule, hits in DAMAGE.items() for hit in hits],
)
def test_rule_notices_damage(rule: Rule, damage: Callable[[Environment], None], found: Environment) -> None:
    damaged = deepcopy(found)
    damage(damaged)
    assert rule(damaged) != []


def test_conda_makes_the_environment_that_the_readme_names() -> None:
    content = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert content["name"] == "kv-cache-course"
    assert content["channels"] == ["conda-forge", "nodefaults"]
    assert set(content) == {"name", "channels", "dependencies"}


def test_a_copy_inside_another_package_is_not_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """setuptools brings copies of other packages, and adds their folder to the path of whoever imports it."""
    (copy := tmp_path / "numpy-0.1.dist-info").mkdir()
    (copy / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n", encoding="utf-8")
    before = installed_packages()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert "0.1" in {package.version for package in importlib.metadata.distributions(name="numpy")}
    assert installed_packages() == before
