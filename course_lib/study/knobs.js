// Knobs above a figure. Each position goes to the kernel once the hand rests; while the kernel draws, only the newest
// position waits. What comes back is a picture, or sentences about what cannot be drawn: then the last picture stays.
// controls.js comes before this.

const REST_MS = 150;
const PATIENCE_MS = 5000;
const HOW_TO_LEAVE = "Esc leaves the field.";
const NO_ANSWER = "The kernel does not answer. If a cell is running, wait for it; otherwise run this cell again.";

function status(id, place) {
  const made = element("div", { className: "course-said", id });
  made.setAttribute("role", "status");
  place.append(made);
  return (text) => {
    if (made.textContent !== text) made.textContent = text;
    made.classList.toggle("course-wrong", text !== "");
  };
}

// One row of controls. `moved(value)` is told each new value, null where a field holds no number.
function row(knob, id, moved) {
  const line = element("div", { className: "course-row" });
  const place = element("div", { className: "course-knob" }, line);
  const field = knob.options
    ? element("select", { id }, ...knob.options.map((text) => element("option", { value: text, textContent: text })))
    : element("input", { type: "number", id, min: knob.low, max: knob.high, step: knob.step });
  const controls = [field];
  const label = element("label", { htmlFor: id, id: `${id}-label`, textContent: knob.label });
  line.append(label, field);
  let slider;
  if (!knob.options) {
    slider = element("input", { type: "range", min: knob.low, max: knob.high, step: knob.step });
    slider.setAttribute("aria-labelledby", label.id);
    slider.addEventListener("input", () => {
      field.value = slider.value;
      moved(Number(slider.value));
    });
    controls.push(slider);
    line.append(slider);
  }
  field.addEventListener("input", () => {
    if (knob.options) return moved(field.value);
    const empty = field.value === ""; // also what the browser gives for a text that is no number
    if (!empty) slider.value = field.value;
    moved(empty ? null : Number(field.value));
  });
  for (const control of controls) control.dataset.lmSuppressShortcuts = "true";
  const say = status(`${id}-said`, place);
  return {
    place,
    set(value) {
      for (const control of controls) control.value = value;
    },
    complain(text) {
      field.setAttribute("aria-describedby", `${id}-said`); // a slider cannot be set to what is wrong
      field.setAttribute("aria-invalid", String(text !== ""));
      say(text && `${text} ${HOW_TO_LEAVE}`);
    },
  };
}

function render({ model, el }) {
  const id = `course-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  const fieldset = element("fieldset", {}, element("legend", { textContent: "Knobs of the figure below" }));
  fieldset.dataset.lmSuppressShortcuts = "true";
  keepKeysButEscape(fieldset, () => toCell(el, figure));
  const image = element("img");
  // Tab stops at the figure: there the keys are the notebook's again, and an arrow goes on to another cell.
  const figure = element("div", { className: "course-figure", tabIndex: 0 }, image);
  figure.setAttribute("role", "group");
  figure.setAttribute("aria-label", "Figure");

  const values = {};
  const rows = {};
  let resting, patience, drawing = false, waiting = false;

  function ask() {
    if (drawing) {
      waiting = true;
      return;
    }
    drawing = true;
    patience = setTimeout(() => {
      drawing = false; // whatever is turned next is tried again
      say(NO_ANSWER);
    }, PATIENCE_MS);
    model.set("asked", { number: model.get("asked").number + 1, values: { ...values } });
    model.save_changes();
  }

  function show() {
    const shown = model.get("shown");
    if (shown.number < model.get("asked").number && drawing) return;
    clearTimeout(patience);
    drawing = false;
    Object.assign(image, { src: shown.src, alt: shown.alt });
    image.style.width = `${shown.width}px`;
    for (const [name, knob] of Object.entries(rows)) knob.complain(shown.problems[name] ?? "");
    say(shown.problem);
    if (waiting) {
      waiting = false;
      ask();
    }
  }

  for (const [number, knob] of model.get("knobs").entries()) {
    rows[knob.name] = row(knob, `${id}-${number}`, (value) => {
      values[knob.name] = value;
      clearTimeout(resting);
      resting = setTimeout(ask, REST_MS);
    });
    values[knob.name] = model.get("asked").values[knob.name];
    rows[knob.name].set(values[knob.name]);
    fieldset.append(rows[knob.name].place);
  }
  const box = element("div", { className: "course-controls" }, fieldset);
  const say = status(`${id}-said`, box);
  box.append(figure);
  show();
  model.on("change:shown", show);
  el.append(box);
  return () => {
    clearTimeout(resting);
    clearTimeout(patience);
    model.off("change:shown", show);
  };
}

export default { render };
