"""Notebook 04 in a real JupyterLab in a real Chromium: its calculator, driven from the keyboard, says what `course
size` says."""

import re
from collections.abc import Callable

import pytest
from course_command import as_json
from lab_server import CHROMIUM, Opened, browser, lab, needs_chromium, open_notebook

__all__ = ["browser", "lab", "open_notebook"]  # fixtures

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

if CHROMIUM:
    from playwright.sync_api import Locator, expect

CALCULATOR = re.compile(r"tokens, \d+ sequences?, \w+: [\d,]+ bytes = ")


def bytes_in(figure: "Locator", begins: str) -> int:
    """The number of bytes that the figure says in its text, once this begins as it should."""
    expect(figure).to_have_attribute("alt", re.compile("^" + re.escape(begins) + ":"))
    found = re.search(r": ([\d,]+) bytes = ", figure.get_attribute("alt") or "")
    assert found is not None
    return int(found[1].replace(",", ""))


def of_the_command(model: str, tokens: int, sequences: int = 1, dtype: str = "bf16") -> int:
    size = as_json("size", "--model", model, "--tokens", str(tokens), "--sequences", str(sequences), "--dtype", dtype)
    return int(size["bytes"])


def test_the_calculator_says_what_course_size_says(open_notebook: Callable[..., Opened]) -> None:
    opened = open_notebook("04_cache_sizing.ipynb")
    opened.run_all_cells(limit_s=300)
    page = opened.page
    expect(page.locator('[data-mime-type="application/vnd.jupyter.error"]')).to_have_count(0)
    expect(page.get_by_text("Error displaying widget")).to_have_count(0)
    figure = page.get_by_role("img", name=CALCULATOR)
    expect(figure).to_have_count(1)

    assert bytes_in(figure, "gemma-2-2b, 8,192 tokens, 1 sequence, bf16") == of_the_command("gemma-2-2b", 8192)

    models = page.get_by_role("combobox", name="Model", exact=True)
    models.scroll_into_view_if_needed()
    models.press("m")  # a list goes to what begins with the letter
    expect(models).to_have_value("mistral-7b-v0.1")
    assert bytes_in(figure, "mistral-7b-v0.1, 8,192 tokens, 1 sequence, bf16") == of_the_command(
        "mistral-7b-v0.1", 8192
    )

    slider = page.get_by_role("slider", name="Tokens of each sequence").first
    for _ in range(10):
        slider.press("ArrowLeft")
    before_the_knee = bytes_in(figure, "mistral-7b-v0.1, 3,072 tokens, 1 sequence, bf16")
    assert before_the_knee == of_the_command("mistral-7b-v0.1", 3072)
    assert before_the_knee < of_the_command("mistral-7b-v0.1", 8192)

    page.get_by_role("spinbutton", name="Sequences", exact=True).press("ArrowUp")
    page.get_by_role("combobox", name="Number format").press("ArrowDown")
    page.get_by_role("combobox", name="Number format").press("ArrowDown")
    models.press("ArrowDown")
    told = bytes_in(figure, "llama-3-8b, 3,072 tokens, 2 sequences, q8_0")
    assert told == of_the_command("llama-3-8b", 3072, 2, "q8_0")

    # The knobs of the figure below are its own: its tokens are where they were.
    assert page.get_by_role("slider", name="Tokens of each sequence").nth(1).input_value() == "8192"
    assert opened.elsewhere == []
