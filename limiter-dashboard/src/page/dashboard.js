// The page of the dashboard: its views, by the hash of the address.

import { main } from "./elements.js";
import { follow, session, state } from "./feed.js";
import { editView } from "./edit.js";
import { historyView } from "./history.js";
import { keyView } from "./key.js";
import { limitersView } from "./limiters.js";
import { rulesView, ruleView } from "./rules.js";
import { refuse, showSession } from "./token.js";

let view = { update() {} };

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show(isNavigation) {
  const [, name = "", argument = ""] = (location.hash || "#/").split("/");
  const views = { "": rulesView, rule: () => ruleView(decoded(argument)), key: keyView, limiters: limitersView, edit: editView, history: historyView };
  view.close?.();
  view = { update() {} };
  const open = views[name] ?? rulesView;
  for (const link of document.querySelectorAll("nav a")) {
    const isCurrent = link.hash === `#/${name === "rule" ? "" : name}`;
    isCurrent ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  view = open();
  if (state) view.update();
  document.title = `${main.querySelector("h1")?.textContent ?? "Rules"} – Rate limits`;
  if (isNavigation && !view.focus?.()) main.querySelector("h1")?.focus();
}

addEventListener("hashchange", () => {
  if (location.hash === "#main") return main.focus();
  show(true);
});

show(false);
follow({
  session(before) {
    showSession();
    if (before.trusted !== session.trusted || before.editable !== session.editable || before.has_token !== session.has_token) show(false);
  },
  state: () => view.update(),
  refused: refuse,
});
