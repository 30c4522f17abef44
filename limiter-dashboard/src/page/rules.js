// All rules, and one of them.

import { badge, button, element, failed, head, main, note, panel, setText } from "./elements.js";
import { counts, followers, rate, request, session, state } from "./feed.js";
import { chart } from "./chart.js";
import { openDraft, openLine } from "./drafts.js";
import { keyTable, liveTable, paintSpark, spark } from "./tables.js";
import { needsToken } from "./token.js";

const NO_ACTIVITY = "No limiter has written activity in the last 15 minutes: call Builder::activity in the program.";
const WORDS = { shadowed: "shadow", cache: "cache", lease: "leases", standby: "standby", policy: "policy" };

export function rulesView() {
  const tile = (name, kind) => {
    const parts = { number: element("p", { class: `number ${kind}` }, "–"), note: element("p", { class: "note" }) };
    return { ...parts, node: element("li", { class: "tile" }, element("p", { class: "name" }, name), parts.number, parts.note) };
  };
  const tiles = { allowed: tile("Allowed a second", "allowed"), denied: tile("Denied a second", "denied"), limiters: tile("Limiters", ""), version: tile("Shared rules", "") };
  const filter = element("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the rules", oninput: () => update() });
  const table = liveTable("Rules with their calls a second", [
    { title: "Rule", build: (cell, { rule }) => cell.append(element("a", { href: `#/rule/${encodeURIComponent(rule)}` }, rule)) },
    { title: "Last minute", kind: "wide", build: spark, paint: (cell, { rule }) => paintSpark(cell, rule) },
    { title: "Allowed/s", kind: "number", text: (rule) => rate(rule.allowed) },
    { title: "Denied/s", kind: "number", text: (rule) => rate(rule.denied), paint: (cell, rule) => cell.classList.toggle("denied", rule.denied > 0) },
    { title: "Not by Redis/s", kind: "wide phrase", hint: "Decided by a cache, leases, the standby limiter or a policy; or in shadow mode", text: (rule) => Object.keys(WORDS).filter((name) => rule[name]).map((name) => `${WORDS[name]} ${rate(rule[name])}`).join(", ") || "–" },
  ], NO_ACTIVITY);
  const left = element("p", { class: "note" });
  const [denied, allowed] = session.trusted ? [keyTable("Denied most often", "denied"), keyTable("Allowed most often", "allowed")] : [];
  main.replaceChildren(head("Rules"), element("ul", { class: "tiles" }, Object.values(tiles).map((one) => one.node)),
    element("div", { class: "columns even" },
      element("div", {}, element("section", { class: "panel", "aria-label": "Rules" }, element("div", { class: "bar" }, element("h2", {}, "Calls a second"), filter), table.node, left)),
      element("div", { class: "rows-2" }, denied?.node ?? needsToken("Keys, hosts and rules are shown")), element("div", {}, allowed?.node)));
  const update = () => {
    if (!state) return;
    const sum = (name) => state.rules.reduce((all, rule) => all + rule[name], 0);
    const isRead = state.at > 0;
    setText(tiles.allowed.number, isRead ? rate(sum("allowed")) : "–");
    setText(tiles.denied.number, isRead ? rate(sum("denied")) : "–");
    setText(tiles.allowed.note, `${counts.format(sum("all_allowed"))} in all`);
    setText(tiles.denied.note, `${counts.format(sum("all_denied"))} in all`);
    const fleet = state.fleet;
    setText(tiles.limiters.number, fleet ? String(fleet.limiters) : "–");
    const other = fleet?.stores.other ?? 0;
    setText(tiles.limiters.note, !fleet ? "not known" : `${state.active} with activity${other ? `, ${other} with a store that is not up` : ""}`);
    setText(tiles.version.number, state.published === null ? "–" : state.published ? `v${state.published}` : "none");
    const { current, all } = followers(state.published);
    setText(tiles.version.note, state.published === null ? "not known" : !state.published ? "not published" : !fleet ? "where in force is not known" : all ? `in force in ${current} of ${all} limiters` : "no limiter follows them");
    const wanted = filter.value.trim().toLowerCase();
    const found = state.rules.filter((rule) => rule.rule.toLowerCase().includes(wanted));
    table.setEmpty(state.failures.length && !state.rules.length ? "Not known: the store fails." : state.rules.length ? `None of ${state.rules.length} rules has “${filter.value.trim()}” in its name.` : NO_ACTIVITY);
    table.update(found.sort((one, other) => other.denied - one.denied || other.all_denied - one.all_denied || (one.rule < other.rule ? -1 : 1)), (rule) => rule.rule);
    setText(left, state.left_out ? `and ${counts.format(state.left_out)} more rules` : "");
    denied?.update();
    allowed?.update();
  };
  return { update };
}

export function ruleView(rule) {
  const plot = chart(rule);
  const facts = element("div", {}, note("Reading…"));
  const keys = session.trusted ? [keyTable("Denied most often", "denied", rule), keyTable("Allowed most often", "allowed", rule)] : [];
  main.replaceChildren(head(rule, element("a", { href: "#/" }, "All rules")),
    element("div", { class: "columns" }, panel("The last 15 minutes", plot.node), session.trusted ? panel("In force", facts) : needsToken("Limits and keys are shown")),
    element("div", { class: "columns even" }, keys.map((part) => part.node)));
  if (session.trusted) readFacts(rule, facts);
  return { update() { plot.update(); keys.forEach((part) => part.update()); }, close: plot.close };
}

async function readFacts(name, place) {
  try {
    const { rule, overrides } = await request(`api/rules/${encodeURIComponent(name)}`);
    if (!rule) return place.replaceChildren(note("No limiter that lives has this rule, and neither has the shared text."));
    const fact = (title, ...value) => [element("dt", {}, title), element("dd", {}, ...value)];
    const limits = (found, settings = []) => [found.join(" and ") || "none", ...settings].join(", ");
    const toLine = (line) => button(`line ${line}`, () => openLine(line), { class: "link" });
    const shared = rule.shared;
    const own = overrides?.list ?? [];
    const entry = ({ keys, settings, line }) => element("li", {}, keys.replaceAll("`", ""), ": ", element("span", { class: "mono" }, settings || "no settings"), ", ", toLine(line));
    place.replaceChildren(element("dl", { class: "facts" },
      fact("Limit", element("span", { class: "mono" }, rule.limiters ? limits(rule.limits, rule.settings) : limits(shared?.limits ?? []))),
      fact("Mode", badge(rule.mode === "enforce" || !rule.mode ? "good" : "warn", rule.mode ?? shared?.mode ?? "enforce")),
      fact("From", rule.origin ?? "the shared rules alone"),
      fact("Keys", element("span", { class: "mono" }, (rule.keys ?? []).join(", ") || "–")),
      fact("Limiters", String(rule.limiters)),
      rule.others.map((other) => fact("Others have", `${limits(other.limits, other.settings)}${other.mode === "enforce" ? "" : `, ${other.mode}`} in ${other.limiters}`)),
      fact("Shared text", ...(shared ? [toLine(shared.line)] : ["does not have it"])),
      own.length ? fact("Overrides", element("ul", { class: "plain" }, own.map(entry), overrides.left_out ? element("li", {}, `and ${counts.format(overrides.left_out)} more`) : null)) : []),
      ...(session.editable ? [element("p", { class: "actions" }, button("Change for all keys…", () => openDraft({ rule: rule.rule })))] : []));
  } catch (error) {
    place.replaceChildren(failed(error));
  }
}
