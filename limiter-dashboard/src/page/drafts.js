// The text that is edited, and changes that other views begin in it.

import { open } from "./elements.js";

export const draft = { base: null, original: "", text: "", has_crlf: false, who: "", why: "" };

// What the editor does when it opens: a line to show, or a limit to change.
let pending = null;

export function isDirty() {
  return draft.base !== null && draft.text !== draft.original;
}

addEventListener("beforeunload", (event) => { if (isDirty()) event.preventDefault(); });

// Takes a text of the server. A text area has other ends of lines.
export function setBase(version, toml) {
  draft.has_crlf = toml.includes("\r\n") && !/[^\r]\n/.test(toml);
  Object.assign(draft, { base: version, original: lines(toml) });
}

export function lines(toml) {
  return toml.replaceAll("\r\n", "\n");
}

export function forServer(text) {
  return draft.has_crlf ? text.replaceAll("\n", "\r\n") : text;
}

export function openLine(line) {
  pending = { line };
  open("#/edit");
}

// Opens the editor with the limit of a key, or of a rule, ready to be typed.
export function openDraft({ rule, key, plan }) {
  pending = { rule, key: key ?? "", plan: plan ?? "" };
  open("#/edit");
}

export function takePending() {
  const taken = pending;
  pending = null;
  return taken;
}
