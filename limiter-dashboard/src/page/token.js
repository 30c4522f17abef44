// The dialog of the token.

import { button, byId, element, main, setText } from "./elements.js";
import { session, setToken } from "./feed.js";

export function openTokenDialog() {
  if (!byId("token-dialog").open) byId("token-dialog").showModal();
  byId("token").focus();
}

export function needsToken(what) {
  if (!session.has_token) return element("div", { class: "panel" }, element("p", { class: "note" }, `${what} only with the token. This dashboard has none: start it with --token-file, or Dashboard::token.`));
  return element("div", { class: "panel" }, element("p", {}, `${what} only with the token.`), button("Enter token", openTokenDialog, { class: "primary" }));
}

// Shows why a token was refused. One that may be right is kept in the field: it can be sent again later.
export function refuse(error, refused) {
  setText(byId("token-problem"), error.message ?? "the token is wrong");
  openTokenDialog();
  if (error.status === 429) byId("token").value = refused;
}

export function showSession() {
  byId("token-button").hidden = !session.has_token;
  setText(byId("token-button"), session.trusted ? "Forget token" : "Enter token");
}

byId("token-button").addEventListener("click", () => (session.trusted ? setToken("") : openTokenDialog()));
byId("token-cancel").addEventListener("click", () => byId("token-dialog").close());
byId("token-dialog").addEventListener("close", () => { byId("token").value = ""; });
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = byId("token").value.trim();
  setText(byId("token-problem"), "");
  byId("token-dialog").close();
  // A second Enter would press the button that had the focus before.
  main.querySelector("h1")?.focus();
  setToken(value);
});
