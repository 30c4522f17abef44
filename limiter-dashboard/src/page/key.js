// The state of a key, read again while it is on the screen.

import { announce, badge, button, element, failed, field, head, main, note, open, panel, setText } from "./elements.js";
import { ago, counts, duration, request, session, state } from "./feed.js";
import { openDraft } from "./drafts.js";
import { liveTable } from "./tables.js";
import { needsToken } from "./token.js";

const INTERVAL_MS = 4000;

// Never in the address: a key may name a customer.
let fields = { key: "", part: "", rule: "", plan: "" };
let question = null; // the fields that were sent
let answer = null;
let answered_at = 0;

export function openKey(key, rule) {
  fields = { key, part: "", rule: key.includes("+") ? rule : "", plan: "" };
  [question, answer] = [{ ...fields }, null];
  open("#/key");
}

export function keyView() {
  if (!session.trusted) {
    [question, answer] = [null, null];
    return main.replaceChildren(head("Key"), needsToken("The state of a key is shown")), { update() {} };
  }
  const input = (name, more) => element("input", { type: "text", autocomplete: "off", spellcheck: "false", class: "mono", ...more, oninput: (event) => { fields[name] = event.target.value; } });
  const inputs = { key: input("key", { placeholder: "user:@42" }), part: input("part", { placeholder: "42" }), rule: input("rule"), plan: input("plan") };
  for (const [name, node] of Object.entries(inputs)) node.value = fields[name];
  const problem = element("div", {});
  const report = keyReport();
  let number = 0;
  let isReading = false;
  const show = () => {
    report.node.hidden = false;
    report.show(answer);
  };
  const read = async (isFirst) => {
    const mine = ++number;
    isReading = true;
    if (isFirst) report.node.setAttribute("aria-busy", "true");
    const { key, part, rule, plan } = question;
    try {
      const found = await request("api/key", { key, parts: part ? [part] : [], rule, plan });
      if (mine !== number) return;
      [answer, answered_at] = [{ ...found, plan }, performance.now()];
      problem.replaceChildren();
      delete report.node.dataset.old;
      show();
      if (isFirst) announce(report.verdict());
    } catch (error) {
      if (mine !== number) return;
      problem.replaceChildren(failed(error), ...suggested(error.suggestions));
      if (isFirst) report.node.hidden = true, (answer = null);
      // The answer before is not that of now.
      else report.node.dataset.old = "";
      if (isFirst && error.status < 500 && error.status > 0) question = null;
    } finally {
      if (mine === number) isReading = false, report.node.removeAttribute("aria-busy");
    }
  };
  const ask = () => {
    question = { ...fields };
    read(true);
  };
  main.replaceChildren(head("Key"), element("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); ask(); } },
    element("div", { class: "fields" }, field("Key, as tables show it", inputs.key), field("Value to append, if it is apart", inputs.part), field("Only this rule", inputs.rule), field("Plan of the customer", inputs.plan)),
    element("p", { class: "actions" }, element("button", { type: "submit", class: "primary" }, "Show"), element("span", { class: "note" }, "Looking takes none of the key’s permits. The answer is read again every 4 s."))), problem, report.node);
  report.node.hidden = true;
  if (answer) show();
  if (question) read(!answer);
  const timer = setInterval(() => {
    if (question && answer && !isReading && !document.hidden) read(false);
  }, INTERVAL_MS);
  return { update() { if (answer) report.tick(); }, close() { clearInterval(timer); number += 1; } };
}

function suggested(keys) {
  if (!keys?.length) return [];
  // Those with activity come first.
  const isKnown = (key) => [...(state?.denied ?? []), ...(state?.allowed ?? [])].some((one) => one.key === key);
  const sorted = [...keys.filter(isKnown), ...keys.filter((key) => !isKnown(key))];
  return [element("p", { class: "suggestions" }, "Did you mean ", sorted.map((key, place) => [place ? ", " : "", button(key, () => openKey(key, ""), { class: "link mono" })]).flat(), "?")];
}

// The report keeps its elements, so that a button under the pointer stays.
function keyReport() {
  const verdict = element("div", { class: "verdict" });
  const cards = element("div", { class: "columns even" });
  const versions = note("");
  const mistake = element("p", { class: "problem" });
  const denials = liveTable("Last denials of the key", [
    { title: "Limiter", text: (item) => `${item.name}, ${item.host} (${item.pid})` }, { title: "Rule", kind: "wide", text: (item) => item.rule },
    { title: "Denials in 15 min", kind: "number", text: (item) => counts.format(item.denials) }, { title: "Last", kind: "number", text: (item) => ago(Date.parse(item.at)) },
  ], "None that limiters with activity have reported.");
  const last = panel("Last denials", denials.node);
  const node = element("div", { class: "answer" }, verdict, mistake, cards, last, versions);
  const shown = new Map();
  let present = null;
  const left = (rule) => (rule.retry_after_ms === null ? Infinity : Math.max(0, rule.retry_after_ms - (performance.now() - answered_at)));
  const next = (rule) => {
    if (rule.allowed) return rule.unread_limits.length ? "not known" : "now";
    if (rule.retry_after_ms === null) return "never";
    const wait = left(rule);
    return `${wait > 0 ? `in ${duration(wait)}` : "about now"}${rule.blocked ? ", blocked" : ""}`;
  };
  const tick = () => {
    if (!present) return;
    const { key, rules, suggestions, templates } = present;
    const worst = rules.filter((rule) => !rule.allowed).sort((one, other) => left(other) - left(one))[0];
    verdict.className = rules.length === 0 ? "warning verdict-none" : worst ? "verdict bad" : "verdict";
    const text = worst ? `Denied by ${worst.rule}: next call ${next(worst)}.` : "Each rule allows the next call.";
    if (rules.length) verdict.replaceChildren(element("span", { class: "mono" }, key), " – ", text);
    else if (verdict.dataset.key !== key) {
      verdict.replaceChildren(element("p", {}, "No rule has the key ", element("span", { class: "mono" }, key), "."), ...suggested(suggestions));
      if (!suggestions?.length && templates?.length) verdict.append(element("p", {}, `The keys are ${templates.slice(0, 10).join(", ")}: a value stands behind an @, as in user:@42.`));
    }
    verdict.dataset.key = rules.length ? "" : key;
    for (const rule of rules) {
      const card = shown.get(rule.rule);
      if (card) setText(card.next, ` next call ${next(rule)}`);
    }
  };
  const limit = ({ limit, used, remaining, overdrawn }) => element("div", { class: "limit" }, element("span", { class: "mono" }, limit),
    element("progress", { max: Math.max(1, used + remaining), value: Math.min(used, Math.max(1, used + remaining)), class: remaining ? "" : "full", "aria-label": `used of ${limit}` }),
    element("span", { class: "note" }, `${counts.format(used)} used, ${overdrawn ? `${counts.format(overdrawn)} beyond` : `${counts.format(remaining)} left`}`));
  const create = (name) => {
    const card = { badges: element("span", {}), next: element("span", {}), limits: element("div", {}) };
    const change = () => openDraft({ key: present.key, rule: name, plan: present.plan });
    card.actions = element("p", { class: "actions" }, session.editable ? button("Change for this key…", change, { class: "primary" }) : note("Read only: the dashboard has no operator’s URL."));
    card.node = panel("", element("p", {}, card.badges, card.next), card.limits, card.actions);
    card.node.querySelector("h2").append(element("a", { href: `#/rule/${encodeURIComponent(name)}` }, name));
    return card;
  };
  const show = (answer) => {
    const is_other = present?.key !== answer.key;
    present = answer;
    if (is_other) shown.clear(), cards.replaceChildren();
    const { rules, last_denials, shared_rules: shared, left_out, key } = answer;
    for (const [name, card] of shown) if (!rules.some((rule) => rule.rule === name)) card.node.remove(), shown.delete(name);
    for (const rule of rules) {
      if (!shown.has(rule.rule)) shown.set(rule.rule, create(rule.rule)), cards.append(shown.get(rule.rule).node);
      const card = shown.get(rule.rule);
      card.badges.replaceChildren(badge(rule.allowed ? "good" : "bad", rule.allowed ? "allows" : "denies"), " ", badge(rule.mode === "enforce" ? "quiet" : "warn", rule.mode));
      card.limits.replaceChildren(...rule.limits.map(limit), ...rule.unread_limits.map((text) => note(`${text}: a limit of the source, which is not known here`)),
        note(`from ${rule.origin}, in ${rule.limiters} limiters`), ...rule.other_limits.map((text) => note(`others have ${text}`)));
      card.actions.hidden = key.includes("+");
    }
    setText(mistake, left_out ? `The shared rules are left out: ${left_out}` : "");
    denials.update(last_denials ?? [], (item) => `${item.rule}\n${item.limiter}`);
    last.hidden = rules.length === 0 && !last_denials?.length;
    const followed = shared.followed.map(({ version, limiters }) => (version === null ? `${limiters} follow none` : `${limiters} follow version ${version}`)).join(", ");
    setText(versions, `Shared rules: ${shared.published ? `version ${shared.published} is published` : "none are published"}${followed ? `; of the limiters ${followed}` : ""}.`);
    tick();
  };
  return { node, show, tick, verdict: () => verdict.textContent };
}
