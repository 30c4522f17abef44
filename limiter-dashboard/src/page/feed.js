// Requests, and the stream of states. The token is in this module's memory alone.

import { byId, element, setText } from "./elements.js";

const root = new URL(".", import.meta.url);
const SILENCE_MS = 8000;
const MAX_POINTS = 900;

let token = "";
let stream = new AbortController();
let listeners = { session() {}, state() {}, refused() {} };

export let session = { trusted: false, editable: false, has_token: true, sparks: {} };
export let state = null;
export const points = new Map(); // the last points of each rule, for small charts

// --- texts -------------------------------------------------------------------------------------------------------

export const counts = new Intl.NumberFormat("en");
export const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export function rate(value) {
  if (value === 0) return "0";
  if (value < 1) return value.toFixed(2);
  return value < 100 ? value.toFixed(1) : counts.format(Math.round(value));
}

export function duration(ms) {
  if (ms < 1000) return `${Math.ceil(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  const [two, parts] = [(large, unit, small, small_unit) => (small ? `${large} ${unit} ${small} ${small_unit}` : `${large} ${unit}`), Math.floor];
  if (seconds < 3600) return two(parts(seconds / 60), "min", parts(seconds % 60), "s");
  if (seconds < 86400) return two(parts(seconds / 3600), "h", parts((seconds % 3600) / 60), "min");
  return two(parts(seconds / 86400), "d", parts((seconds % 86400) / 3600), "h");
}

export function ago(ms) {
  const age = Math.max(0, (state?.at || Date.now()) - ms);
  return age < 1000 ? "now" : `${duration(Math.floor(age / 1000) * 1000).replace(".0", "")} ago`;
}

export function time(ms) {
  return element("time", { datetime: new Date(ms).toISOString(), title: new Date(ms).toISOString() }, ago(ms));
}

// The limiters that follow at least a version of the shared rules, all that follow any, and the others.
export function followers(version) {
  const versions = state?.fleet?.versions ?? [];
  const known = versions.filter(([of]) => of !== null);
  const sum = (list) => list.reduce((all, [, limiters]) => all + limiters, 0);
  return { current: sum(known.filter(([of]) => of >= version)), all: sum(known), none: sum(versions) - sum(known) };
}

// --- requests ----------------------------------------------------------------------------------------------------

export async function request(path, body) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { headers, method: body === undefined ? "GET" : "POST", cache: "no-store", credentials: "omit" };
  if (body !== undefined) options.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch(new URL(path, root), options);
  } catch {
    throw { status: 0, message: "The dashboard cannot be reached." };
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw { ...answer, status: response.status, message: answer.error ?? `status ${response.status}` };
  return answer;
}

export function setToken(value) {
  token = value;
  stream.abort("token");
}

// --- the stream --------------------------------------------------------------------------------------------------

export async function follow(on) {
  listeners = on;
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    stream = new AbortController();
    try {
      await readStream(stream, () => { pause = 500; });
    } catch (error) {
      if ((error.status === 401 || error.status === 429) && token) {
        const refused = token;
        token = "";
        listeners.refused(error, refused);
      }
    }
    if (stream.signal.reason !== "token") showFailure("lost", "The dashboard cannot be reached.", "It is tried again.");
    if (!stream.signal.aborted || stream.signal.reason === "silence") await new Promise((next) => setTimeout(next, pause));
  }
}

async function readStream(controller, onEvent) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let watch = setTimeout(() => controller.abort("silence"), SILENCE_MS);
  try {
    const response = await fetch(new URL("api/events", root), { headers, signal: controller.signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) {
      const answer = await response.json().catch(() => ({}));
      throw { status: response.status, message: answer.error ?? "the dashboard refuses the connection" };
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => controller.abort("silence"), SILENCE_MS);
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const [name, text] = event.split("\n").map((line) => line.slice(line.indexOf(": ") + 2));
        onEvent();
        take(name, JSON.parse(text));
      }
    }
  } finally {
    clearTimeout(watch);
  }
}

function take(name, value) {
  if (name === "session") {
    const before = session;
    session = value;
    points.clear();
    for (const [rule, all] of Object.entries(value.sparks)) points.set(rule, all);
    listeners.session(before);
  } else if (name === "state") {
    state = value;
    for (const rule of state.rules) remember(rule);
    showFailures(state.failures);
    document.documentElement.dataset.at = state.at;
    listeners.state();
  }
}

function remember({ rule, allowed, denied }) {
  const all = points.get(rule) ?? [];
  if (all.length === 0 || all.at(-1)[0] < state.at) all.push([state.at, allowed, denied]);
  if (all.length > MAX_POINTS) all.shift();
  points.set(rule, all);
}

// Shows each message once, with the parts of the page that it is about.
function showFailures(failures) {
  const messages = new Map();
  for (const [part, text] of failures) messages.set(text, [...(messages.get(text) ?? []), part]);
  const texts = [...messages].map(([text, parts]) => `${parts.join(", ")}: ${text}`);
  if (texts.length) return showFailure("failing", "The store fails.", `${texts.join("; ")}.`, failures.some(([part]) => part === "activity"));
  byId("live").dataset.state = "live";
  setText(byId("live-text"), "live");
  byId("failure").hidden = true;
  delete document.documentElement.dataset.stale;
}

function showFailure(kind, text, details, isStale = true) {
  byId("live").dataset.state = kind;
  setText(byId("live-text"), kind === "lost" ? "not connected" : "store fails");
  const age = !isStale ? "" : state?.at ? ` Rates and counts are those of ${clock.format(state.at)}.` : " Nothing was read yet.";
  setText(byId("failure"), `${text}${age} ${details}`);
  byId("failure").hidden = false;
  if (isStale) document.documentElement.dataset.stale = "";
  else delete document.documentElement.dataset.stale;
}
