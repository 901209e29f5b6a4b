// What the page sides of the course's controls share. `page_side` in page.py puts it before each of them.

/** An element with properties and children. */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Keep every key to `controls`, but Escape, which calls `leave`. */
function keepKeysButEscape(controls, leave) {
  controls.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") leave();
  });
}

/** Give the focus to the cell that `el` stands in: there all keys are the notebook's. Elsewhere `otherwise` gets it. */
function toCell(el, otherwise) {
  (el.closest(".jp-Cell") ?? otherwise).focus();
}
