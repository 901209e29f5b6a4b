// A field for a prediction. What is typed goes to the kernel; what the kernel says of it is shown beside the field.
// Enter notes the number and moves the focus to the sentence that says so, where keys are the notebook's again; Escape
// leads back to the cell. controls.js comes before this.

const PATIENCE_MS = 5000;
const NO_ANSWER =
  "Not noted: the kernel does not answer. If a cell is running, wait for it; otherwise run this cell again.";

function render({ model, el }) {
  const id = `course-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  const field = element("input", { type: "text", id, autocomplete: "off", inputMode: "decimal" });
  const button = element("button", { type: "submit", textContent: "Note it", tabIndex: -1 });
  const said = element("div", { className: "course-said", id: `${id}-said`, tabIndex: -1 });
  said.setAttribute("role", "status");
  const unit = element("span", { textContent: model.get("unit"), id: `${id}-unit` });
  const label = element("label", { htmlFor: id, className: "course-question", textContent: model.get("question") });
  const form = element("form", { noValidate: true }, label, element("div", { className: "course-row" }, field, unit, button));
  field.setAttribute("aria-describedby", `${unit.id} ${said.id}`);
  for (const control of [field, button]) control.dataset.lmSuppressShortcuts = "true";
  keepKeysButEscape(form, () => toCell(el, said));

  let timer, byEnter = false, sent = null, awaited = 0;

  function show() {
    const reply = model.get("reply");
    if (reply.number < awaited) return;
    awaited = 0;
    clearTimeout(timer);
    said.textContent = reply.said;
    said.classList.toggle("course-wrong", reply.wrong);
    field.setAttribute("aria-invalid", String(reply.wrong));
    // The focus goes on only from where Enter was pressed, not if the learner has moved on.
    if (byEnter && !reply.wrong && form.contains(document.activeElement)) said.focus();
    byEnter = false;
  }

  function note(entered) {
    if (!entered && field.value === sent) return;
    sent = field.value;
    byEnter = entered;
    clearTimeout(timer);
    timer = setTimeout(() => {
      said.textContent = NO_ANSWER;
      said.classList.add("course-wrong");
      sent = null;
    }, PATIENCE_MS);
    awaited = model.get("entered").number + 1;
    model.set("entered", { number: awaited, text: field.value });
    model.save_changes();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    note(true);
  });
  field.addEventListener("change", () => setTimeout(() => note(false))); // left with Tab or the mouse; or Enter, noted
  const renew = () => {
    if (document.activeElement !== field) field.value = model.get("text");
  };
  field.value = sent = model.get("text");
  model.on("change:reply", show);
  model.on("change:text", renew);
  show();
  model.set("on_page", true);
  model.save_changes();
  el.append(element("div", { className: "course-controls" }, form, said));
  return () => {
    clearTimeout(timer);
    model.off("change:reply", show);
    model.off("change:text", renew);
  };
}

export default { render };
