// Elements of the page. Texts of others are only ever set as text.

export const main = document.getElementById("main");
export const byId = (id) => document.getElementById(id);

// Creates an element. Children are elements or texts; `null` is left out.
export function element(name, fields, ...children) {
  const node = document.createElement(name);
  for (const [field, value] of Object.entries(fields ?? {})) {
    if (field.startsWith("on")) node.addEventListener(field.slice(2), value);
    else if (field === "class") node.className = value;
    else if (field in node && typeof value !== "string") node[field] = value;
    else node.setAttribute(field, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function announce(text) {
  setText(byId("announcement"), text);
}

export function head(title, ...more) {
  return element("div", { class: "bar" }, element("h1", { tabindex: "-1" }, title), ...more);
}

export function panel(title, ...children) {
  const id = `panel-${(panel.count = (panel.count ?? 0) + 1)}`;
  return element("section", { class: "panel", "aria-labelledby": id }, element("h2", { id }, title), ...children);
}

export function field(label, input, note) {
  input.id ||= `field-${(field.count = (field.count ?? 0) + 1)}`;
  return element("div", {}, element("label", { for: input.id }, label), input, note ? element("p", { class: "note" }, note) : null);
}

export function badge(kind, text) {
  return element("span", { class: `badge ${kind}` }, text);
}

export function button(text, onclick, fields) {
  return element("button", { type: "button", onclick, ...fields }, text);
}

export function note(text) {
  return element("p", { class: "note" }, text);
}

export function failed(error) {
  return element("p", { class: "problem", role: "alert" }, error.message ?? String(error));
}

// Opens a view by its hash, also the one that is open.
export function open(hash) {
  if (location.hash === hash) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}
