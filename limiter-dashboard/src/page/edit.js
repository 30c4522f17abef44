// The editor of the shared text.

import { button, element, failed, field, head, main, note, panel, setText } from "./elements.js";
import { request, session, state } from "./feed.js";
import { draft, forServer, isDirty, lines, openDraft, setBase, takePending } from "./drafts.js";
import { diffBox, effectBoxes, inForce } from "./effect.js";
import { needsToken } from "./token.js";

const NO_RULES = "# No rules.\n";
const EXAMPLE = `[rules."user:{user_id}"]
limit = "5/10s"              # for each user

[[rules."user:{user_id}".override]]
match = { user_id = "4711" } # for this one alone
limit = "100/10s"
`;

let published = null; // the last publication of this page

export function editView() {
  if (!session.trusted) return main.replaceChildren(head("Edit the shared rules"), needsToken("The text is shown")), { update() {} };
  const parts = elements();
  const { gutter, area, problem, news, hint, effect, conflict, outcome, base, who, why, consent, consented, publish, undo, choice } = parts;
  let wrong = 0;
  let timer = 0;
  let number = 0;
  let checked = null;
  let needs_consent = false;
  let has_focus = false;

  // --- the text ---

  const numbers = () => {
    const count = area.value.split("\n").length;
    gutter.replaceChildren(...Array.from({ length: count }, (_, line) => [line + 1 === wrong ? element("span", { class: "wrong" }, String(line + 1)) : String(line + 1), "\n"]).flat());
    gutter.scrollTop = area.scrollTop;
  };
  const select = (start, end) => {
    area.focus();
    has_focus = true;
    area.setSelectionRange(start, end);
    area.scrollTop = (area.value.slice(0, start).split("\n").length - 4) * parseFloat(getComputedStyle(area).lineHeight);
    numbers();
  };
  // Without a column the whole line is selected.
  const goTo = (line, column) => {
    const all = area.value.split("\n");
    const start = all.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    const text = all[line - 1] ?? "";
    const at = start + [...text].slice(0, Math.max(0, (column ?? 1) - 1)).join("").length;
    select(at, column === undefined ? start + text.length : at);
  };
  const buttons = () => {
    undo.disabled = !isDirty();
    consent.hidden = !needs_consent;
    publish.disabled = !(session.editable && isDirty() && checked === area.value && (!needs_consent || consented.checked));
    setText(base, draft.base === null ? "" : draft.base === 0 ? "no text is published yet" : `based on version ${draft.base}`);
  };
  const put = (text) => { area.value = text; changed(); };
  const changed = () => {
    draft.text = area.value;
    checked = null;
    numbers();
    buttons();
    clearTimeout(timer);
    timer = setTimeout(check, 300);
  };

  // --- the effect ---

  const check = async () => {
    const text = area.value;
    const mine = ++number;
    if (!isDirty()) {
      wrong = 0;
      needs_consent = false;
      numbers();
      buttons();
      problem.replaceChildren();
      return effect.replaceChildren(note(draft.base === null ? "The text is not known yet." : "You have not changed the text."));
    }
    try {
      const answer = await request("api/text/check", { toml: forServer(text) });
      if (mine !== number) return;
      const { mistake, version } = answer;
      wrong = mistake?.line ?? 0;
      problem.replaceChildren(...(mistake ? mistakes(mistake, answer.is_empty) : []));
      const compared = version ? `Compared with version ${version}, the one that is published.` : "Nothing is published yet: this would be version 1.";
      effect.replaceChildren(...(mistake ? [note("A text with a mistake cannot be published."), diffBox(answer.diff)] : effectBoxes(answer, goTo)), note(compared));
      needs_consent = answer.warnings.some((warning) => warning.suggestion);
      consented.checked = false;
      checked = mistake ? null : text;
    } catch (error) {
      if (mine !== number) return;
      problem.replaceChildren(failed(error));
      effect.replaceChildren(note("The effect of your change is not known: the text could not be checked."), button("Check again", check));
    }
    numbers();
    buttons();
  };
  const mistakes = (mistake, isEmpty) => [
    element("p", { class: "mistake", role: "alert" }, element("span", { class: "problem" }, mistake.message), " ",
      mistake.line ? button(`Go to line ${mistake.line}`, () => goTo(mistake.line, mistake.column ?? 1), { class: "link" }) : null),
    isEmpty && session.editable ? element("p", { class: "actions" }, button("Publish a text without rules…", () => { put(NO_RULES); area.focus(); })) : null,
  ].filter(Boolean);

  // --- what is published ---

  const load = ({ version, toml }) => {
    setBase(version, toml);
    news.replaceChildren();
    conflict.replaceChildren();
    put(draft.original);
  };
  const read = () => request("api/text").then(load).catch((error) => {
    problem.replaceChildren(failed(error), button("Read again", () => { problem.replaceChildren(); read(); }));
    effect.replaceChildren(note("The published text is not known."));
  });
  const begin = async (wanted) => {
    setText(hint, "");
    try {
      const toml = isDirty() ? forServer(draft.text) : undefined;
      const answer = await request("api/text/draft", { ...wanted, toml });
      if (toml === undefined) setBase(answer.version, answer.published);
      put(lines(answer.toml));
      select(...answer.select);
      const whom = wanted.key ? `for ${wanted.key}` : `of ${wanted.rule} for all keys`;
      setText(hint, `The limit ${whom} is selected: type the new one.`);
      if (!draft.why || draft.why === draft.auto) why.value = draft.why = draft.auto = wanted.key ? `limit for ${wanted.key}` : `limit of ${wanted.rule}`;
    } catch (error) {
      if (draft.base === null) await read();
      problem.replaceChildren(failed(error));
    }
  };
  const showConflict = ({ present, yours, diff }) => {
    const side = (title, text, about) => panel(title, about ? note(about) : null, element("pre", { class: "text", tabindex: "0", role: "group", "aria-label": title }, text));
    const keep = () => {
      setBase(present.version, present.toml);
      conflict.replaceChildren();
      news.replaceChildren();
      changed();
      area.focus();
    };
    const title = element("h2", { tabindex: "-1" }, `Conflict: version ${present.version} was published meanwhile`);
    conflict.replaceChildren(element("div", { class: "warning" }, title, element("p", {}, "Nothing of yours was published. Compare the texts, and choose.")),
      element("div", { class: "columns even" }, side(`Published: version ${present.version}`, present.toml, `${present.who} (claimed): ${present.why || "no reason"}`), side("Yours", yours)),
      panel("From theirs to yours", diffBox(diff)),
      element("p", { class: "actions" }, button(`Keep my text, and discard version ${present.version}`, keep), button(`Take version ${present.version}, and discard my text`, () => load(present))));
    title.focus();
  };
  const send = async (event) => {
    event.preventDefault();
    if (publish.disabled) return;
    publish.disabled = true;
    setText(outcome, "Publishing…");
    const toml = area.value;
    try {
      const { version } = await request("api/text/publish", { toml: forServer(toml), if_version: draft.base, who: draft.who, why: draft.why, anyway: needs_consent && consented.checked });
      Object.assign(draft, { base: version, original: toml, text: area.value, why: "" });
      why.value = "";
      setText(hint, "");
      published = { version, at: performance.now() };
      setText(outcome, `Version ${version} is published.`);
      changed();
    } catch (error) {
      setText(outcome, "");
      if (error.status === 409 && error.present) return showConflict(error);
      if (error.needs_consent) return check();
      const unsure = error.may_be_published ? " It may be published all the same: the history shows it." : "";
      problem.replaceChildren(failed({ message: error.message + unsure }));
      buttons();
    }
  };
  area.addEventListener("input", changed);
  area.addEventListener("scroll", () => { gutter.scrollTop = area.scrollTop; });
  consented.addEventListener("change", buttons);
  undo.addEventListener("click", () => { setText(hint, ""); put(draft.original); area.focus(); });
  choice.addEventListener("change", () => { if (choice.value) openDraft({ rule: choice.value }); });
  parts.form.addEventListener("submit", send);

  const wanted = takePending();
  if (draft.base !== null) area.value = draft.text, changed();
  if (wanted?.rule) begin(wanted);
  else if (!isDirty()) read().then(() => wanted?.line && goTo(wanted.line));
  else if (wanted?.line) goTo(wanted.line);
  return {
    update() {
      if (published) setText(outcome, inForce(published));
      chooseFrom(choice, state.rules.map((rule) => rule.rule));
      if (draft.base !== null && state.published > draft.base && !conflict.firstChild) {
        if (!isDirty()) return void read();
        if (!news.firstChild) news.append(element("p", { class: "warning", role: "alert" }, `Version ${state.published} was published meanwhile. Your text is based on version ${draft.base}: publishing it will show both.`));
      }
    },
    focus: () => has_focus || wanted !== null,
    close() { clearTimeout(timer); number += 1; },
  };
}

function chooseFrom(choice, rules) {
  if (choice.options.length === rules.length + 1) return;
  const [first] = choice.options;
  choice.replaceChildren(first, ...[...rules].sort().map((rule) => element("option", { value: rule }, rule)));
}

function elements() {
  const gutter = element("pre", { class: "gutter", "aria-hidden": "true" });
  const area = element("textarea", { id: "toml", wrap: "off", spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-label": "Text of the shared rules", readOnly: !session.editable });
  const problem = element("div", {});
  const news = element("div", {});
  const hint = element("p", { class: "note", role: "status" });
  const effect = element("div", { "aria-live": "polite" }, note("The text is being read."));
  const conflict = element("div", {});
  const outcome = element("p", { class: "outcome", role: "status" });
  const base = element("span", { class: "note" });
  const publish = element("button", { type: "submit", class: "primary", disabled: true }, "Publish");
  const undo = element("button", { type: "button", disabled: true }, "Undo my changes");
  // Enter in a field is not yet the wish to publish.
  const onkeydown = (event) => { if (event.key === "Enter") event.preventDefault(), publish.focus(); };
  const input = (name, more) => element("input", { type: "text", required: true, ...more, onkeydown, oninput: (event) => { draft[name] = event.target.value; } });
  const who = input("who", { autocomplete: "name", placeholder: "ana" });
  const why = input("why", { autocomplete: "off", placeholder: "INC-731: the database is slow" });
  [who.value, why.value] = [draft.who, draft.why];
  const consented = element("input", { type: "checkbox", id: "anyway" });
  const consent = element("p", { class: "consent", hidden: true }, consented, element("label", { for: "anyway" }, "Publish anyway: no limiter has the names of the warnings, so they change nothing."));
  const choice = element("select", { id: "choice" }, element("option", { value: "" }, "choose a rule"));
  const editor = element("section", { class: "panel editor-panel", "aria-label": "Editor" }, hint, element("div", { class: "editor" }, gutter, area), problem);
  if (session.editable) {
    editor.append(element("p", { class: "choice" }, element("label", { for: "choice" }, "Change the limit of "), choice),
      element("details", {}, element("summary", {}, "An example"), element("pre", { class: "text" }, EXAMPLE)));
  } else editor.append(note("Read only: the dashboard has no operator’s URL."));
  const bottom = session.editable
    ? element("section", { class: "panel publish-panel", "aria-label": "Publish" }, element("div", { class: "fields" }, field("Who: the history shows it", who), field("Why", why)), consent, element("p", { class: "actions" }, publish, undo), outcome)
    : element("div", { class: "publish-panel" }, outcome);
  const effect_panel = panel("Effect", effect);
  effect_panel.classList.add("effect-panel");
  const form = element("form", { class: "edit" }, editor, effect_panel, bottom);
  main.replaceChildren(head("Edit the shared rules", base), news, conflict, form);
  return { gutter, area, problem, news, hint, effect, conflict, outcome, base, who, why, consent, consented, publish, undo, choice, form };
}
