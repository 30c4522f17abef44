// The effect of a text: what changes for whom, warnings, and the difference.

import { badge, button, element, note } from "./elements.js";
import { counts, duration, followers, state } from "./feed.js";

export function diffBox(lines) {
  const kinds = { "@": "hunk", "+": "added", "-": "removed", " ": "" };
  if (lines.length === 0) return note("The text is the same.");
  const line = ([kind, text]) => element("div", { class: kinds[kind] }, kind === "@" ? text : `${kind} ${text}`);
  return element("div", { class: "diff mono", role: "group", "aria-label": "Difference", tabindex: "0" }, lines.map(line));
}

// The changes of limits in words, then the warnings, then the difference of the texts.
export function effectBoxes({ changes, changes_left_out: left, notes, warnings, diff }, goTo) {
  const change = ({ keys, before, after, starts_new_counts: isNew }) => element("li", {}, code(keys), ": ",
    before ? [element("span", { class: "mono" }, before), " → "] : [], element("strong", { class: before ? "mono" : "" }, after), isNew ? [" ", badge("warn", "starts new counts")] : []);
  const list = changes.length ? element("ul", { class: "changes" }, changes.map(change), left ? element("li", {}, `and ${counts.format(left)} more`) : null) : null;
  const warning = ({ message, line }) => element("p", {}, code(message), line && goTo ? [" ", button(`line ${line}`, () => goTo(line), { class: "link" })] : []);
  const warned = warnings?.length ? element("div", { class: "warning", role: "alert" }, warnings.map(warning)) : null;
  const noted = notes.length ? element("div", { class: "warning" }, notes.map((text) => element("p", {}, code(text)))) : null;
  const nothing = list || diff.length === 0 ? null : note("No key gets another limit.");
  return [list, nothing, warned, noted, diffBox(diff)].filter(Boolean);
}

// Texts between backticks, as code.
function code(text) {
  return text.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
}

// --- a publication -----------------------------------------------------------------------------------------------

// Returns where a version is in force that this page has published.
export function inForce(published, what = "") {
  const { version } = published;
  if (state?.published > version) return `Version ${version}${what} was published. Version ${state.published} has replaced it since.`;
  const { current, all, none } = followers(version);
  const others = none ? `; ${none} follow no shared rules` : "";
  if (!state?.fleet) return `Version ${version}${what} is published. Where it is in force is not known.`;
  if (!all) return `Version ${version}${what} is published. No limiter that lives follows the shared rules.`;
  if (current === all) published.after ??= performance.now() - published.at;
  return `Version ${version}${what} is in force in ${current} of ${all} limiters${current === all ? ` after ${duration(published.after)}` : ""}${others}.`;
}
