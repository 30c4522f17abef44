// Tables that keep their rows, small charts, and the lists of keys.

import { button, element, panel, setText } from "./elements.js";
import { ago, counts, points, session, state } from "./feed.js";
import { openDraft } from "./drafts.js";
import { openKey } from "./key.js";

// Creates a table that keeps its rows, so that the focus stays where it is.
export function liveTable(caption, columns, empty) {
  const body = element("tbody");
  const headers = columns.map(({ title, kind, hint }) => element("th", { scope: "col", class: kind ?? "", title: hint ?? "" }, title));
  const table = element("table", {}, element("caption", { class: "hidden-text" }, caption), element("thead", {}, element("tr", {}, headers)), body);
  const note = element("p", { class: "note" }, empty);
  const rows = new Map();
  const node = element("div", {}, table, note);
  [table.hidden, note.hidden] = [true, true];
  const update = (items, key) => {
    table.hidden = items.length === 0;
    note.hidden = items.length > 0;
    const found = new Set(items.map(key));
    for (const [name, row] of rows) {
      if (!found.has(name)) row.node.remove(), rows.delete(name);
    }
    items.forEach((item, place) => {
      let row = rows.get(key(item));
      if (!row) {
        const cells = columns.map((column, index) => element(index ? "td" : "th", index ? { class: column.kind ?? "" } : { scope: "row", class: column.kind ?? "" }));
        row = { cells, node: element("tr", {}, cells) };
        rows.set(key(item), row);
        columns.forEach((column, index) => column.build?.(cells[index], item));
      }
      columns.forEach((column, index) => {
        if (column.text) setText(row.cells[index], column.text(item));
        column.paint?.(row.cells[index], item);
      });
      if (body.children[place] !== row.node) body.insertBefore(row.node, body.children[place] ?? null);
    });
  };
  const setEmpty = (text) => setText(note, text);
  return { node, update, setEmpty };
}

// --- small charts ------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

export function spark(cell) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const kind of ["of-allowed", "of-denied"]) {
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("class", kind);
    svg.append(line);
  }
  cell.append(svg);
}

export function paintSpark(cell, rule) {
  const all = (points.get(rule) ?? []).slice(-60);
  const most = Math.max(0.001, ...all.map(([, allowed, denied]) => Math.max(allowed ?? 0, denied)));
  const [first, last] = [all[0]?.[0] ?? 0, all.at(-1)?.[0] ?? 1];
  const line = (place) => all.filter((point) => point[place] !== null)
    .map((point) => `${(((point[0] - first) / Math.max(1, last - first)) * 100).toFixed(1)},${(19 - (point[place] / most) * 18).toFixed(1)}`).join(" ");
  const [allowed, denied] = cell.firstChild.children;
  allowed.setAttribute("points", line(1));
  denied.setAttribute("points", line(2));
}

// --- keys --------------------------------------------------------------------------------------------------------

// The keys of a list of the state, of one rule or of all.
export function keyTable(title, list, rule) {
  const isDenied = list === "denied";
  const range = ({ count, error }) => (error ? `${counts.format(Math.max(0, count - error))}–${counts.format(count)}` : counts.format(count));
  const small = (item) => [rule === undefined ? item.rule : null, ago(item.last_seen)].filter(Boolean).join(" · ");
  const columns = [
    { title: "Key", build: (cell, { key, rule }) => cell.append(button(key, () => openKey(key, rule), { class: "link mono" }), element("span", { class: "narrow note" })), paint: (cell, item) => setText(cell.lastChild, small(item)) },
    rule === undefined ? { title: "Rule", kind: "wide", text: (item) => item.rule } : null,
    isDenied ? { title: "Last min", kind: "number", hint: "Denials in the last minute", text: (item) => counts.format(item.minute), paint: (cell, item) => cell.classList.toggle("denied", item.minute > 0) } : null,
    { title: isDenied ? "Denials" : "Calls", kind: isDenied && rule !== undefined ? "number wide" : "number", hint: "Since the starts of the limiters", text: range },
    { title: "Last", kind: "number wide", text: (item) => ago(item.last_seen) },
    rule !== undefined && session.editable ? { title: "", kind: "number", build: (cell, { key, rule }) => !key.includes("+") && cell.append(button("Change…", () => openDraft({ key, rule }), { "aria-label": `Change the limit for ${key}` })) } : null,
  ].filter(Boolean);
  const table = liveTable(title, columns, "None in the last 15 minutes.");
  const update = () => table.update((state?.[list] ?? []).filter((key) => rule === undefined || key.rule === rule).slice(0, 20), (key) => `${key.rule}\n${key.key}`);
  return { node: panel(title, table.node), update };
}

