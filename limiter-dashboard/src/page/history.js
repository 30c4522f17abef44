// Earlier versions, their differences, and rollbacks.

import { badge, button, element, failed, field, head, main, note, setText } from "./elements.js";
import { ago, request, session, state, time } from "./feed.js";
import { draft } from "./drafts.js";
import { effectBoxes, inForce } from "./effect.js";
import { needsToken } from "./token.js";

let rolled_back = null; // the last rollback of this page

export function historyView() {
  if (!session.trusted) return main.replaceChildren(head("History"), needsToken("Earlier texts are shown")), { update() {} };
  const list = element("ol", { class: "versions" });
  const problem = element("p", { class: "problem", role: "alert" });
  const empty = element("p", { class: "note" });
  const outcome = element("p", { class: "outcome", role: "status", tabindex: "-1" });
  const news = element("p", { class: "warning", role: "status", hidden: true });
  let newest = null;
  const read = async () => {
    try {
      const { versions } = await request("api/history");
      newest = Math.max(newest ?? 0, versions[0]?.version ?? 0);
      list.replaceChildren(...versions.map((version, place) => entry(version, place === 0)));
      // The time before the first version is a state to go back to.
      if (versions.at(-1)?.version === 1) list.append(entry({ version: 0 }, false));
      setText(problem, "");
      setText(empty, versions.length ? "" : "No text was published yet.");
      news.hidden = true;
    } catch (error) {
      setText(problem, error.message);
    }
  };
  const entry = ({ version, who, when, why, added, removed }, isPresent) => {
    const detail = element("div", { class: "detail", hidden: true });
    const toggle = element("button", { type: "button", "aria-expanded": "false" }, isPresent ? "Text" : "Compare");
    toggle.addEventListener("click", async () => {
      detail.hidden = !detail.hidden;
      toggle.setAttribute("aria-expanded", String(!detail.hidden));
      if (!detail.hidden) await openDetail(version, isPresent, detail);
    });
    const about = version === 0 ? [element("strong", {}, "none"), element("span", { class: "why" }, "before the first version")]
      : [element("strong", {}, `v${version}`), time(when), element("span", { title: "a claim: all operators have one token" }, who || "unknown"),
        element("span", { class: "mono" }, added === undefined ? "" : `+${added} −${removed}`), element("span", { class: "why" }, why || "no reason")];
    return element("li", {}, element("div", { class: "line" }, about, isPresent ? badge("good", "published") : null, toggle), detail);
  };
  const openDetail = async (version, isPresent, detail) => {
    try {
      const answer = await request(`api/history/${version}`);
      if (isPresent) return detail.replaceChildren(element("pre", { class: "text", tabindex: "0", role: "group", "aria-label": `Text of version ${version}` }, answer.toml));
      const form = session.editable ? rollbackForm(version, answer.present) : null;
      detail.replaceChildren(...[note(`Going back would change this of version ${answer.present}:`), ...effectBoxes(answer), form].filter(Boolean));
    } catch (error) {
      detail.replaceChildren(failed(error));
    }
  };
  const rollbackForm = (version, present) => {
    const submit = element("button", { type: "submit", class: "primary" }, version ? `Roll back to version ${version}` : "Back to none");
    const onkeydown = (event) => { if (event.key === "Enter") event.preventDefault(), submit.focus(); };
    const who = element("input", { type: "text", autocomplete: "name", placeholder: "ana", required: true, onkeydown, oninput: () => { draft.who = who.value; } });
    const why = element("input", { type: "text", autocomplete: "off", onkeydown, placeholder: version ? `back to version ${version}` : "back to no rules" });
    who.value = draft.who;
    const refused = element("p", { class: "problem", role: "alert" });
    const send = async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        const done = await request("api/text/rollback", { version, if_version: present, who: who.value, why: why.value || why.placeholder });
        const what = version ? `, the text of version ${version},` : ", a text without rules,";
        rolled_back = { version: done.version, at: performance.now(), who: who.value, what };
        setText(outcome, `Version ${done.version}${what} is published.`);
        newest = done.version;
        await read();
        outcome.focus();
      } catch (error) {
        setText(refused, error.status === 409 ? `${error.message}: compare again` : error.message);
        submit.disabled = false;
      }
    };
    return element("form", { onsubmit: send }, element("div", { class: "fields" }, field("Who: the history shows it", who), field("Why", why)), element("p", { class: "actions" }, submit), refused);
  };
  main.replaceChildren(head("History"), element("section", { class: "panel", "aria-label": "Versions" }, note("Authors are claims: a text has the name that its writer has given."), outcome, news, problem, empty, list));
  read();
  return {
    update() {
      if (rolled_back) setText(outcome, `${inForce(rolled_back, rolled_back.what)} By ${rolled_back.who}.`);
      for (const node of list.querySelectorAll("time")) setText(node, ago(Date.parse(node.dateTime)));
      if (newest === null || !(state.published > newest)) return;
      newest = state.published;
      // What is being compared stays.
      if (!list.querySelector(".detail:not([hidden])")) return void read();
      news.replaceChildren(`Version ${newest} was published meanwhile. `, button("Show it", read, { class: "link" }));
      news.hidden = false;
    },
  };
}
