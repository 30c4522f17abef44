// The limiters that live.

import { badge, element, head, main, setText } from "./elements.js";
import { ago, request, session, state } from "./feed.js";
import { liveTable } from "./tables.js";
import { needsToken } from "./token.js";

const INTERVAL_MS = 2000;

export function limitersView() {
  if (!session.trusted) {
    const text = element("p", {});
    main.replaceChildren(head("Limiters"), element("div", { class: "panel" }, text), needsToken("Hosts are shown"));
    return { update() { setText(text, state?.fleet ? `${state.fleet.limiters} limiters live.` : "How many limiters live is not known."); } };
  }
  const table = liveTable("Limiters that live", [
    { title: "Host", text: (item) => `${item.host} (${item.pid})` },
    { title: "Id", kind: "mono wide", text: (item) => item.id },
    { title: "Since", kind: "wide", text: (item) => ago(item.since) },
    { title: "Last seen", kind: "wide", text: (item) => ago(item.last_seen) },
    { title: "Rules", kind: "number", text: (item) => (item.rules_version === null ? "–" : `v${item.rules_version}`), paint: (cell, item) => cell.classList.toggle("denied", item.rules_version !== null && item.rules_version < state?.published) },
    { title: "Store", paint: (cell, item) => cell.firstChild?.textContent === item.store || cell.replaceChildren(badge(item.store === "up" ? "good" : "bad", item.store)) },
    { title: "Version", kind: "wide", text: (item) => item.version },
  ], "No limiter has written a heartbeat: it writes the first one after 10 s.");
  const problem = element("p", { class: "problem", role: "alert" });
  const left = element("p", { class: "note" });
  main.replaceChildren(head("Limiters"), element("section", { class: "panel", "aria-label": "Limiters" }, problem, table.node, left));
  let asked_at = 0;
  return {
    update() {
      if (Date.now() - asked_at < INTERVAL_MS) return;
      asked_at = Date.now();
      request("api/limiters").then((answer) => {
        setText(problem, "");
        table.update(answer.limiters, (item) => item.id);
        setText(left, answer.left_out ? `and ${answer.left_out} more` : "");
      }).catch((error) => setText(problem, `Which limiters live is not known: ${error.message}`));
    },
  };
}
