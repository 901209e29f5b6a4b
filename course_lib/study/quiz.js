// The page side of a sheet of questions (quiz_widget.py): native, labelled form controls, and what the kernel says to
// an answer. It knows no key: it sends what was chosen and shows what comes back. No text ever becomes markup.
// controls.js comes before this.

const PATIENCE_MS = 4000;
const NO_ANSWER =
  "No answer from Python yet. If a cell is running, it comes when that is done. Otherwise run this cell again.";

const KEYS_OF_QUIZ = "Keys: Tab and the arrows to choose, Escape back to the notebook.";
const KEYS_OF_WARM_UP = "Keys: Tab and the arrows to choose, Escape to skip.";

/** An element with properties, attributes (names with a dash, or role) and children. */
function make(tag, options = {}, children = []) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name.includes("-") || name === "role") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

// A line of code that was wrong, and one that mends it: the mark says which, the colour only repeats it.
const MARKS = { removed: "\u2212 ", added: "+ " };

/** A text in spans, [[kind, text], …], as elements. */
function rich(spans) {
  return spans.map(([kind, text]) => {
    if (kind === "text") return text;
    if (kind in MARKS) return make("code", { className: `course-quiz-${kind}` }, [MARKS[kind] + text]);
    return make(kind === "code" ? "code" : "em", {}, [text]);
  });
}

const paragraph = (spans, className = "") => make("p", { className }, rich(spans));
const plain = (text, className = "") => paragraph([["text", text]], className);

// Jupyter's own keys (arrows between cells, letters as commands) stay away from what carries this.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

/** The controls of one question: their element, what was given, and how to show something as given. */
function choiceControls(question, unique) {
  const type = question.type === "one" ? "radio" : "checkbox";
  const inputs = question.offered.map((_, index) =>
    make("input", { type, name: unique, id: `${unique}-${index}`, ...OWN_KEYS }),
  );
  const rows = question.offered.map((spans, index) =>
    make("div", { className: "course-quiz-choice" }, [
      inputs[index],
      make("label", { htmlFor: inputs[index].id }, rich(spans)),
    ]),
  );
  const chosen = () => inputs.flatMap((input, index) => (input.checked ? [index] : []));
  const hint = type === "checkbox" ? [plain("Choose all that are right.", "course-quiz-hint")] : [];
  return {
    element: make("div", {}, [...hint, ...rows]),
    inputs,
    given: () => (type === "radio" ? (chosen()[0] ?? null) : chosen()),
    fill: (given) => {
      const all = Array.isArray(given) ? given : [given];
      inputs.forEach((input, index) => (input.checked = all.includes(index)));
      rows.forEach((row, index) => row.classList.toggle("course-quiz-chosen", all.includes(index)));
    },
  };
}

function numberControls(question, unique) {
  const input = make("input", { type: "text", id: unique, autocomplete: "off", inputMode: "decimal", ...OWN_KEYS });
  const label = question.unit ? `Your answer in ${question.unit}` : "Your answer, a number";
  return {
    element: make("div", { className: "course-quiz-number" }, [make("label", { htmlFor: unique }, [label]), input]),
    inputs: [input],
    given: () => input.value.slice(0, 200),
    fill: (given) => (input.value = given ?? ""),
  };
}

function orderControls(question, unique) {
  const places = question.offered.map((_, index) => index + 1);
  const inputs = question.offered.map((_, index) =>
    make("select", { id: `${unique}-${index}`, ...OWN_KEYS }, [
      make("option", { value: "" }, ["–"]),
      ...places.map((place) => make("option", { value: String(place) }, [String(place)])),
    ]),
  );
  const rows = question.offered.map((spans, index) =>
    make("div", { className: "course-quiz-choice" }, [
      inputs[index],
      make("label", { htmlFor: inputs[index].id }, rich(spans)),
    ]),
  );
  const hint = plain(`Give each its place: 1 comes first, ${places.length} last.`, "course-quiz-hint");
  return {
    element: make("div", {}, [hint, ...rows]),
    inputs,
    // For each place, the item there. A place that was given twice or never stays empty, and the kernel says so.
    given: () => {
      const chosen = inputs.map((input) => Number(input.value));
      if (chosen.includes(0)) return [];
      return places.map((place) => chosen.indexOf(place));
    },
    fill: (given) => {
      inputs.forEach((input, index) => (input.value = given ? String(given.indexOf(index) + 1) : ""));
    },
  };
}

const CONTROLS = { one: choiceControls, several: choiceControls, number: numberControls, order: orderControls };

/** One question: its element, and what to do with what the kernel says of it. `number`, "2. ", stands before it;
 * `send` takes a message to the kernel. */
function makeQuestion(question, number, unique, send) {
  const controls = CONTROLS[question.type](question, unique);
  const button = (text) => make("button", { type: "button", className: "course-quiz-button", ...OWN_KEYS }, [text]);
  const answer = button("Answer");
  const again = button("Try again");
  const show = button("Show the answer");
  const reply = make("div", { className: "course-quiz-reply", role: "status", tabIndex: -1 });
  const actions = make("div", { className: "course-quiz-actions" }, [answer, again, show]);
  const source = question.source ? [make("span", { className: "course-quiz-source" }, [`${question.source} `])] : [];
  const element = make("fieldset", { className: "course-quiz-question", ...OWN_KEYS }, [
    make("legend", {}, [...source, number, ...rich(question.text)]),
    controls.element,
    reply,
    actions,
  ]);
  let state = { given: null };
  let waiting = null; // the timer of an answer that is on its way

  const setOpen = (open) => {
    for (const input of controls.inputs) input.disabled = !open;
    answer.hidden = !open;
    again.hidden = open || state.right || state.answer?.length > 0;
    show.hidden = open || !state.mayAsk;
    element.classList.toggle("course-quiz-open", open);
  };
  const say = (nodes, verdict = "") => {
    reply.replaceChildren(...nodes);
    reply.dataset.verdict = verdict;
  };
  const ask = (message) => {
    if (waiting !== null) return; // one answer at a time: a second press is not a second try
    const late = () => say([plain(NO_ANSWER)]);
    waiting = setTimeout(late, PATIENCE_MS);
    answer.setAttribute("aria-disabled", "true");
    if (!send({ ...message, question: question.name })) late();
  };
  const arrived = () => {
    const asked = waiting !== null;
    clearTimeout(waiting);
    waiting = null;
    answer.removeAttribute("aria-disabled");
    reply.setAttribute("aria-live", asked ? "polite" : "off"); // what was answered earlier is not read out
    return asked;
  };

  answer.addEventListener("click", () => ask({ kind: "answer", given: controls.given() }));
  show.addEventListener("click", () => ask({ kind: "show" }));
  again.addEventListener("click", () => {
    say([]);
    controls.fill(null);
    setOpen(true);
    controls.inputs[0].focus();
  });
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.type === "text") answer.click();
  });
  setOpen(true);

  return {
    element,
    answered: () => state.given !== null || waiting !== null,
    showProblem(text) {
      arrived();
      say([plain(text)], "problem");
      if (element.contains(document.activeElement)) controls.inputs[0].focus();
    },
    showState(next, problem) {
      const asked = arrived();
      const hadFocus = element.contains(document.activeElement);
      const unsaved = problem ? [plain(problem, "course-quiz-unsaved")] : [];
      if (next.given === null) {
        if (state.given !== null) controls.fill(null); // answers were reset meanwhile
        state = next;
        setOpen(true);
        say([...(next.changed ? [plain("This question has changed since you answered it.")] : []), ...unsaved]);
        return;
      }
      state = next;
      controls.fill(next.given);
      setOpen(false);
      say([...told(next), ...unsaved], next.right ? "right" : "wrong");
      if (asked && hadFocus) (again.hidden ? reply : again).focus();
    },
  };
}

/** What is said to an answer. */
function told(state) {
  const nodes = [plain(state.right ? "Right." : "Not right yet.", "course-quiz-verdict")];
  nodes.push(...state.said.map((spans) => paragraph(spans)));
  if (state.answer.length === 1) {
    nodes.push(paragraph([["text", "The answer: "], ...state.answer[0]]));
  } else if (state.answer.length > 1) {
    nodes.push(plain("The answer:"), make("ol", {}, state.answer.map((spans) => make("li", {}, rich(spans)))));
  }
  if (state.explanation.length) nodes.push(paragraph(state.explanation));
  return nodes;
}

let sheets = 0;

function render({ model, el }) {
  const unique = `course-quiz-${Date.now()}-${sheets++}`;
  const send = (message) => {
    try {
      model.send(message);
      return true;
    } catch {
      return false; // the kernel that this page talked to is gone
    }
  };
  const asked = model.get("questions");
  const questions = new Map(
    asked.map((question, index) => [
      question.name,
      makeQuestion(question, asked.length > 1 ? `${index + 1}. ` : "", `${unique}-${index}`, send),
    ]),
  );
  const notice = make("div", { className: "course-quiz-notice", role: "status" });
  const parts = [...questions.values()].map((question) => question.element);
  let canSkip = model.get("can_skip");
  const keys = plain(canSkip ? KEYS_OF_WARM_UP : KEYS_OF_QUIZ, "course-quiz-hint");
  const button = make("button", { type: "button", className: "course-quiz-button", ...OWN_KEYS }, ["Skip"]);
  button.addEventListener("click", () => skip());
  const end = make("div", { className: "course-quiz-notice", role: "status" }); // where the button was
  if (canSkip) parts.push(make("div", { className: "course-quiz-actions" }, [button]), end);
  const body = make("div", {}, parts);
  const root = make("section", { className: "course-quiz", "aria-label": model.get("title"), tabIndex: -1 }, [
    plain(model.get("title"), "course-quiz-title"),
    keys,
    notice,
    body,
  ]);
  const tell = (texts) => notice.replaceChildren(...texts.filter(Boolean).map((text) => plain(text)));
  const leave = () => toCell(el, root);
  // A warm-up that is over, or not: which questions stay, and what is said. Only the kernel knows for certain.
  const settle = ({ kept, over, line }) => {
    for (const [name, question] of questions) question.element.hidden = !kept.includes(name);
    canSkip = !over;
    button.hidden = over;
    keys.textContent = over ? KEYS_OF_QUIZ : KEYS_OF_WARM_UP;
    if (end.textContent !== line) end.replaceChildren(...(line ? [plain(line)] : []));
  };
  const skip = () => {
    leave();
    const kept = [...questions].filter(([, question]) => question.answered()).map(([name]) => name);
    settle({ kept, over: true, line: "" });
    const unheard = () => tell([NO_ANSWER]);
    clearTimeout(late);
    late = setTimeout(unheard, PATIENCE_MS);
    if (!send({ kind: "skip" })) unheard();
  };

  keepKeysButEscape(root, () => (canSkip ? skip : leave)());
  let late = setTimeout(() => tell([NO_ANSWER]), PATIENCE_MS);
  const receive = (message) => {
    clearTimeout(late);
    if (message.kind === "problem") questions.get(message.question)?.showProblem(message.text);
    if (message.kind === "skipped") tell([message.problem]);
    if (message.warmUp) settle(message.warmUp);
    if (message.kind === "state") {
      if (message.notices) tell(message.notices);
      for (const [name, state] of Object.entries(message.questions)) {
        questions.get(name)?.showState(state, message.problem);
      }
    }
  };
  model.on("msg:custom", receive);
  el.append(root);
  if (!send({ kind: "hello" })) tell([NO_ANSWER]);
  return () => {
    clearTimeout(late);
    model.off("msg:custom", receive);
  };
}

export default { render };
