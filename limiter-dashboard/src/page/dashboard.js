// The page of the dashboard. Texts of others are only ever set as text. The token is in this module's memory alone.

const root = new URL(".", import.meta.url);
const main = document.getElementById("main");
const byId = (id) => document.getElementById(id);

let token = "";
let session = { trusted: false, editable: false, sparks: {} };
let state = null;
let view = { update() {} };
const history = new Map(); // the last points of each rule, for small charts

// --- elements ----------------------------------------------------------------------------------------------------

// Creates an element. Children are elements or texts; `null` is left out.
function element(name, fields, ...children) {
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

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function announce(text) {
  setText(byId("announcement"), text);
}

function head(title, ...more) {
  return element("div", { class: "bar" }, element("h1", { tabindex: "-1" }, title), ...more);
}

function panel(title, ...children) {
  const id = `panel-${(panel.count = (panel.count ?? 0) + 1)}`;
  return element("section", { class: "panel", "aria-labelledby": id }, element("h2", { id }, title), ...children);
}

function field(label, input, note) {
  input.id ||= `field-${(field.count = (field.count ?? 0) + 1)}`;
  return element("div", {}, element("label", { for: input.id }, label), input, note ? element("p", { class: "note" }, note) : null);
}

function badge(kind, text) {
  return element("span", { class: `badge ${kind}` }, text);
}

// --- texts -------------------------------------------------------------------------------------------------------

const counts = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

function rate(value) {
  if (value === 0) return "0";
  if (value < 1) return value.toFixed(2);
  return value < 100 ? value.toFixed(1) : counts.format(Math.round(value));
}

function duration(ms) {
  if (ms < 1000) return `${Math.ceil(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  const [two, parts] = [(large, unit, small, small_unit) => (small ? `${large} ${unit} ${small} ${small_unit}` : `${large} ${unit}`), Math.floor];
  if (seconds < 3600) return two(parts(seconds / 60), "min", parts(seconds % 60), "s");
  if (seconds < 86400) return two(parts(seconds / 3600), "h", parts((seconds % 3600) / 60), "min");
  return two(parts(seconds / 86400), "d", parts((seconds % 86400) / 3600), "h");
}

function ago(ms) {
  const age = Math.max(0, (state?.at || Date.now()) - ms);
  return age < 1000 ? "now" : `${duration(Math.floor(age / 1000) * 1000).replace(".0", "")} ago`;
}

function time(ms) {
  return element("time", { datetime: new Date(ms).toISOString(), title: new Date(ms).toISOString() }, ago(ms));
}

// --- requests ----------------------------------------------------------------------------------------------------

async function request(path, body) {
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

function failed(error) {
  return element("p", { class: "problem", role: "alert" }, error.message ?? String(error));
}

// --- the stream --------------------------------------------------------------------------------------------------

let stream = new AbortController();
const SILENCE_MS = 8000;

async function follow() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    stream = new AbortController();
    try {
      await readStream(stream, () => { pause = 500; });
    } catch (error) {
      if (error.status === 401 || error.status === 429) refuseToken(error);
    }
    if (byId("live").dataset.state !== "lost") showLive("lost", "connection lost, trying again");
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
      showLive("lost", answer.error ?? "the dashboard refuses the connection");
      throw { status: response.status, message: answer.error };
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
    history.clear();
    for (const [rule, points] of Object.entries(value.sparks)) history.set(rule, points);
    setText(byId("token-button"), session.trusted ? "Forget token" : "Enter token");
    if (before.trusted !== session.trusted || before.editable !== session.editable) show(false);
  } else if (name === "state") {
    state = value;
    for (const rule of state.rules) remember(rule);
    const failures = state.failures.map(([part, text]) => `${part}: ${text}`).join("; ");
    if (failures) showLive("failing", `the store fails: ${failures}`);
    else showLive("live", "live");
    document.documentElement.dataset.at = state.at;
    view.update();
  }
}

function remember({ rule, allowed, denied }) {
  const points = history.get(rule) ?? [];
  if (points.length === 0 || points.at(-1)[0] < state.at) points.push([state.at, allowed, denied]);
  if (points.length > 900) points.shift();
  history.set(rule, points);
}

function showLive(kind, text) {
  byId("live").dataset.state = kind;
  setText(byId("live-text"), text);
}

function refuseToken(error) {
  if (!token) return;
  token = "";
  setText(byId("token-problem"), error.message ?? "the token is wrong");
  openTokenDialog();
}

// --- the token ---------------------------------------------------------------------------------------------------

function openTokenDialog() {
  if (!byId("token-dialog").open) byId("token-dialog").showModal();
  byId("token").focus();
}

byId("token-button").addEventListener("click", () => {
  if (!session.trusted) return openTokenDialog();
  token = "";
  stream.abort("token");
});
byId("token-cancel").addEventListener("click", () => byId("token-dialog").close());
byId("token-dialog").addEventListener("close", () => { byId("token").value = ""; });
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  setText(byId("token-problem"), "");
  byId("token-dialog").close();
  stream.abort("token");
});

function needsToken(what) {
  return element("div", { class: "panel" }, element("p", {}, `${what} only with the token.`),
    element("button", { type: "button", class: "primary", onclick: openTokenDialog }, "Enter token"));
}

// --- tables and charts -------------------------------------------------------------------------------------------

// Creates a table that keeps its rows, so that the focus stays where it is.
function liveTable(caption, columns, empty) {
  const body = element("tbody");
  const headers = columns.map(({ title, kind }) => element("th", { scope: "col", class: kind ?? "" }, title));
  const table = element("table", {}, element("caption", { class: "hidden-text" }, caption), element("thead", {}, element("tr", {}, headers)), body);
  const note = element("p", { class: "note" }, empty);
  const rows = new Map();
  const node = element("div", {}, table, note);
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
  return { node, update };
}

const SVG = "http://www.w3.org/2000/svg";

function spark(cell) {
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

function paintSpark(cell, rule) {
  const points = (history.get(rule) ?? []).slice(-60);
  const most = Math.max(0.001, ...points.map(([, allowed, denied]) => Math.max(allowed ?? 0, denied)));
  const [first, last] = [points[0]?.[0] ?? 0, points.at(-1)?.[0] ?? 1];
  const line = (place) => points.filter((point) => point[place] !== null)
    .map((point) => `${(((point[0] - first) / Math.max(1, last - first)) * 100).toFixed(1)},${(19 - (point[place] / most) * 18).toFixed(1)}`).join(" ");
  const [allowed, denied] = cell.firstChild.children;
  allowed.setAttribute("points", line(1));
  denied.setAttribute("points", line(2));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A chart of the last 15 minutes of a rule.
function chart(rule) {
  const place = element("div", { class: "chart", role: "img" });
  const values = { allowed: element("span", { class: "value" }), denied: element("span", { class: "value" }) };
  const legend = element("ul", { class: "legend" }, element("li", { class: "allowed" }, "allowed a second ", values.allowed),
    element("li", { class: "denied" }, "denied a second ", values.denied));
  let points = [];
  let plot = null;
  const columns = () => [points.map(([at]) => at / 1000), points.map(([, allowed]) => allowed), points.map(([, , denied]) => denied)];
  const width = () => Math.max(200, place.clientWidth);
  const build = () => {
    plot?.destroy();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const line = (name) => ({ stroke: colour(name), width: 2, fill: `color-mix(in srgb, ${colour(name)} 12%, transparent)`, points: { show: false } });
    plot = new uPlot({
      width: width(), height: 240, legend: { show: false }, cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
      axes: [{ ...axis, values: (_, splits) => splits.map((second) => clock.format(second * 1000)), space: 70 }, { ...axis, size: 44 }], series: [{}, line("--allowed"), line("--denied")],
    }, columns(), place);
  };
  const update = () => {
    const now = state?.rules.find((one) => one.rule === rule);
    if (now && (points.length === 0 || points.at(-1)[0] < state.at)) points.push([state.at, now.allowed, now.denied]);
    points = points.filter(([at]) => at > (state?.at ?? 0) - 900_000);
    setText(values.allowed, now ? rate(now.allowed) : "0");
    setText(values.denied, now ? rate(now.denied) : "0");
    const most = Math.max(0, ...points.map(([, , denied]) => denied));
    place.setAttribute("aria-label", `Allowed ${rate(now?.allowed ?? 0)} and denied ${rate(now?.denied ?? 0)} calls a second, at most ${rate(most)} denied in 15 minutes`);
    plot?.setData(columns());
  };
  const size = new ResizeObserver(() => plot?.setSize({ width: width(), height: 240 }));
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", build);
  request(`api/rates/${encodeURIComponent(rule)}`).then((answer) => {
    points = answer.points;
    build();
    size.observe(place);
    update();
  }).catch((error) => place.replaceChildren(failed(error)));
  const close = () => { scheme.removeEventListener("change", build); size.disconnect(); plot?.destroy(); };
  return { node: element("div", {}, legend, place), update, close };
}

function keyTable(title, list, counted, rule) {
  const columns = [
    { title: "Key", build: (cell, { key, rule }) => cell.append(element("button", { type: "button", class: "link mono", onclick: () => openKey(key, rule) }, key)) },
    { title: "Rule", kind: "wide", text: (item) => item.rule },
    { title: counted, kind: "number", text: ({ count, error }) => (error ? `${counts.format(Math.max(0, count - error))}–${counts.format(count)}` : counts.format(count)) },
    { title: "Last", kind: "number wide", text: (item) => ago(item.last_seen) },
  ];
  const table = liveTable(title, rule === undefined ? columns : columns.filter((column) => column.title !== "Rule"), "None in the last 15 minutes.");
  const update = () => table.update((state?.[list] ?? []).filter((key) => rule === undefined || key.rule === rule).slice(0, 20), (key) => `${key.rule}\n${key.key}`);
  return { node: panel(title, table.node), update };
}

function diffBox(lines) {
  const kinds = { "@": "hunk", "+": "added", "-": "removed", " ": "" };
  if (lines.length === 0) return element("p", { class: "note" }, "No difference.");
  const line = ([kind, text]) => element("div", { class: kinds[kind] }, kind === "@" ? text : `${kind} ${text}`);
  return element("div", { class: "diff mono", role: "group", "aria-label": "Difference", tabindex: "0" }, lines.map(line));
}

function notesBox(notes) {
  return notes.length ? element("div", { class: "warning" }, notes.map((note) => element("p", {}, note))) : null;
}

// --- rules -------------------------------------------------------------------------------------------------------

function fleetText(version) {
  const versions = state?.fleet?.versions ?? [];
  const followers = versions.filter(([of]) => of !== null);
  const sum = (list) => list.reduce((all, [, limiters]) => all + limiters, 0);
  return { current: sum(followers.filter(([of]) => of >= version)), all: sum(followers), none: sum(versions) - sum(followers) };
}

function rulesView() {
  const tile = (name, kind) => {
    const parts = { number: element("p", { class: `number ${kind}` }, "–"), note: element("p", { class: "note" }) };
    return { ...parts, node: element("li", { class: "tile" }, element("p", { class: "name" }, name), parts.number, parts.note) };
  };
  const tiles = { allowed: tile("Allowed a second", "allowed"), denied: tile("Denied a second", "denied"), limiters: tile("Limiters", ""), version: tile("Shared rules", "") };
  const filter = element("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the rules", oninput: () => update() });
  const others = ["shadowed", "cache", "lease", "standby", "policy"];
  const table = liveTable("Rules with their calls a second", [
    { title: "Rule", build: (cell, { rule }) => cell.append(element("a", { href: `#/rule/${encodeURIComponent(rule)}` }, rule)) },
    { title: "Last minute", kind: "wide", build: spark, paint: (cell, { rule }) => paintSpark(cell, rule) },
    { title: "Allowed/s", kind: "number", text: (rule) => rate(rule.allowed) },
    { title: "Denied/s", kind: "number", text: (rule) => rate(rule.denied), paint: (cell, rule) => cell.classList.toggle("denied", rule.denied > 0) },
    { title: "Elsewhere/s", kind: "wide", text: (rule) => others.filter((name) => rule[name]).map((name) => `${name} ${rate(rule[name])}`).join(", ") || "–" },
    { title: "Denied in all", kind: "number wide", text: (rule) => counts.format(rule.all_denied) },
    { title: "Limiters", kind: "number wide", text: (rule) => String(rule.limiters) },
  ], "No limiter has written activity in the last 15 minutes: call Builder::activity in the program.");
  const left = element("p", { class: "note" });
  const keys = session.trusted ? [keyTable("Denied most often", "denied", "Denials"), keyTable("Allowed most often", "allowed", "Calls")] : [];
  const side = session.trusted ? keys.map((part) => part.node) : [needsToken("Keys, hosts and rules are shown")];
  main.replaceChildren(head("Rules"), element("ul", { class: "tiles" }, Object.values(tiles).map((one) => one.node)),
    element("div", { class: "columns" }, element("section", { class: "panel", "aria-label": "Rules" }, element("div", { class: "bar" }, element("h2", {}, "Calls a second"), filter), table.node, left), element("div", {}, side)));
  const update = () => {
    if (!state) return;
    const sum = (name) => state.rules.reduce((all, rule) => all + rule[name], 0);
    setText(tiles.allowed.number, rate(sum("allowed")));
    setText(tiles.denied.number, rate(sum("denied")));
    setText(tiles.allowed.note, `${counts.format(sum("all_allowed"))} in all`);
    setText(tiles.denied.note, `${counts.format(sum("all_denied"))} in all`);
    const fleet = state.fleet;
    setText(tiles.limiters.number, fleet ? String(fleet.limiters) : "–");
    const other = fleet?.stores.other ?? 0;
    setText(tiles.limiters.note, !fleet ? "not known" : `${state.active} with activity${other ? `, ${other} with a store that is not up` : ""}`);
    setText(tiles.version.number, state.published === null ? "–" : state.published ? `v${state.published}` : "none");
    const { current, all } = fleetText(state.published);
    setText(tiles.version.note, !state.published ? "not published" : all ? `in force in ${current} of ${all} limiters` : "no limiter follows them");
    const wanted = filter.value.trim().toLowerCase();
    table.update(state.rules.filter((rule) => rule.rule.toLowerCase().includes(wanted)).sort((one, other) => other.denied - one.denied || other.all_denied - one.all_denied || (one.rule < other.rule ? -1 : 1)), (rule) => rule.rule);
    setText(left, state.left_out ? `and ${counts.format(state.left_out)} more rules` : "");
    keys.forEach((part) => part.update());
  };
  return { update };
}

function ruleView(rule) {
  const plot = chart(rule);
  const facts = element("div", {}, element("p", { class: "note" }, "Reading…"));
  const keys = session.trusted ? [keyTable("Denied most often", "denied", "Denials", rule), keyTable("Allowed most often", "allowed", "Calls", rule)] : [];
  main.replaceChildren(head(rule, element("a", { href: "#/" }, "All rules")),
    element("div", { class: "columns" }, panel("The last 15 minutes", plot.node), session.trusted ? panel("In force", facts) : needsToken("Limits and keys are shown")),
    element("div", { class: "columns even" }, keys.map((part) => part.node)));
  if (session.trusted) readFacts(rule, facts);
  return { update() { plot.update(); keys.forEach((part) => part.update()); }, close: plot.close };
}

async function readFacts(name, place) {
  try {
    const { rule } = await request(`api/rules/${encodeURIComponent(name)}`);
    if (!rule) return place.replaceChildren(element("p", { class: "note" }, "No limiter that lives has this rule, and neither has the shared text."));
    const fact = (title, ...value) => [element("dt", {}, title), element("dd", {}, ...value)];
    const limits = (found) => found.join(" and ") || "none";
    const shared = rule.shared;
    const line = shared && element("button", { type: "button", class: "link", onclick: () => openLine(shared.line) }, `line ${shared.line}`);
    place.replaceChildren(element("dl", { class: "facts" },
      fact("Limit", element("span", { class: "mono" }, limits(rule.limiters ? rule.limits : shared?.limits ?? []))),
      fact("Mode", badge(rule.mode === "enforce" || !rule.mode ? "good" : "warn", rule.mode ?? shared?.mode ?? "enforce")),
      fact("From", rule.origin ?? "the shared rules alone"),
      fact("Keys", element("span", { class: "mono" }, (rule.keys ?? []).join(", ") || "–")),
      fact("Limiters", String(rule.limiters)),
      rule.others.map((other) => fact("Elsewhere", `${limits(other.limits)}${other.mode === "enforce" ? "" : `, ${other.mode}`} in ${other.limiters}`)),
      fact("Shared text", ...(shared ? [line, `, ${shared.overrides} ${shared.overrides === 1 ? "override" : "overrides"}`] : ["does not have it"]))));
  } catch (error) {
    place.replaceChildren(failed(error));
  }
}

// --- a key -------------------------------------------------------------------------------------------------------

let asked = { key: "", part: "", rule: "", plan: "" }; // never in the address: a key may name a customer

function openKey(key, rule) {
  asked = { key, part: "", rule: key.includes("+") ? rule : "", plan: "", now: true };
  if (location.hash === "#/key") show(true);
  else location.hash = "#/key";
}

function keyView() {
  if (!session.trusted) return main.replaceChildren(head("Key"), needsToken("The state of a key is shown")), { update() {} };
  const input = (name, more) => element("input", { type: "text", autocomplete: "off", spellcheck: "false", class: "mono", ...more, oninput: (event) => { asked[name] = event.target.value; } });
  const inputs = { key: input("key", { placeholder: "user:@42" }), part: input("part", { placeholder: "42" }), rule: input("rule"), plan: input("plan") };
  for (const [name, node] of Object.entries(inputs)) node.value = asked[name];
  const result = element("div", {});
  const ask = async () => {
    result.setAttribute("aria-busy", "true");
    const { key, part, rule, plan } = asked;
    try {
      const answer = await request("api/key", { key, parts: part ? [part] : [], rule, plan });
      result.replaceChildren(...keyReport(answer));
      announce(result.querySelector(".verdict")?.textContent ?? "");
    } catch (error) {
      result.replaceChildren(failed(error));
    }
    result.removeAttribute("aria-busy");
  };
  main.replaceChildren(head("Key"), element("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); ask(); } },
    element("div", { class: "fields" }, field("Key, or its text", inputs.key), field("Value behind it, unescaped", inputs.part), field("Rule, if not each that fits", inputs.rule), field("Plan of the customer", inputs.plan)),
    element("p", { class: "actions" }, element("button", { type: "submit", class: "primary" }, "Show"), element("span", { class: "note" }, "Nothing is taken."))), result);
  if (asked.now) delete asked.now, ask();
  return { update() {} };
}

function keyReport({ key, rules, last_denials, shared_rules: versions, left_out: mistake }) {
  const wait = (rule) => (rule.allowed ? -1 : rule.retry_after_ms ?? Infinity);
  const next = (rule) => (rule.allowed ? (rule.unread_limits.length ? "not known" : "now") : rule.retry_after_ms === null ? "never" : `in ${duration(rule.retry_after_ms)}${rule.blocked ? ", blocked" : ""}`);
  const worst = rules.filter((rule) => !rule.allowed).sort((one, other) => wait(other) - wait(one))[0];
  const verdict = rules.length === 0 ? "No rule fits this key." : worst ? `Denied by ${worst.rule}: next call ${next(worst)}.` : "Each rule allows the next call.";
  const limit = ({ limit, used, remaining, overdrawn }) => element("div", { class: "limit" }, element("span", { class: "mono" }, limit),
    element("progress", { max: Math.max(1, used + remaining), value: Math.min(used, Math.max(1, used + remaining)), class: remaining ? "" : "full", "aria-label": `used of ${limit}` }),
    element("span", { class: "note" }, `${counts.format(used)} used, ${overdrawn ? `${counts.format(overdrawn)} beyond` : `${counts.format(remaining)} left`}`));
  const card = (rule) => panel(rule.rule, element("p", {}, badge(rule.allowed ? "good" : "bad", rule.allowed ? "allows" : "denies"), " ", badge(rule.mode === "enforce" ? "quiet" : "warn", rule.mode), ` next call ${next(rule)}`),
    rule.limits.map(limit), rule.unread_limits.map((text) => element("p", { class: "note" }, `${text}: a limit of the source, which is not known here`)),
    element("p", { class: "note" }, `from ${rule.origin}, in ${rule.limiters} limiters`), rule.other_limits.map((text) => element("p", { class: "note" }, `elsewhere: ${text}`)));
  const table = liveTable("Last denials of the key", [
    { title: "Limiter", text: (item) => `${item.name}, ${item.host} (${item.pid})` }, { title: "Rule", text: (item) => item.rule },
    { title: "Denials in 15 min", kind: "number", text: (item) => counts.format(item.denials) }, { title: "Last", kind: "number", text: (item) => ago(Date.parse(item.at)) },
  ], "None that limiters with activity have reported.");
  table.update(last_denials ?? [], (item) => `${item.rule}\n${item.limiter}`);
  const followed = versions.followed.map(({ version, limiters }) => `${version === null ? "none" : `version ${version}`} in ${limiters}`).join(", ");
  return [element("p", { class: worst ? "verdict bad" : "verdict" }, element("span", { class: "mono" }, key), " – ", verdict),
    mistake ? element("p", { class: "problem" }, `The shared rules are left out: ${mistake}`) : "",
    element("div", { class: "columns even" }, rules.map(card)), panel("Last denials", table.node),
    element("p", { class: "note" }, `Shared rules: version ${versions.published} is published; limiters follow ${followed || "none"}.`)];
}

// --- limiters ----------------------------------------------------------------------------------------------------

function limitersView() {
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
      if (Date.now() - asked_at < 2000) return;
      asked_at = Date.now();
      request("api/limiters").then((answer) => {
        setText(problem, "");
        table.update(answer.limiters, (item) => item.id);
        setText(left, answer.left_out ? `and ${answer.left_out} more` : "");
      }).catch((error) => setText(problem, error.message));
    },
  };
}

// --- the text ----------------------------------------------------------------------------------------------------

const draft = { base: null, original: "", text: "", who: "", why: "", line: 0 };
const isDirty = () => draft.base !== null && draft.text !== draft.original;
addEventListener("beforeunload", (event) => { if (isDirty()) event.preventDefault(); });

function openLine(line) {
  draft.line = line;
  location.hash = "#/edit";
}

function editView() {
  if (!session.trusted) return main.replaceChildren(head("Edit the shared rules"), needsToken("The text is shown")), { update() {} };
  const gutter = element("pre", { class: "gutter", "aria-hidden": "true" });
  const area = element("textarea", { id: "toml", wrap: "off", spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-label": "Text of the shared rules", readOnly: !session.editable });
  const problem = element("div", { role: "alert" });
  const news = element("div", {});
  const effect = element("div", { "aria-live": "polite" }, element("p", { class: "note" }, "No change."));
  const conflict = element("div", {});
  const outcome = element("p", { class: "outcome", role: "status" });
  const base = element("span", { class: "note" });
  const input = (name, more) => element("input", { type: "text", ...more, oninput: (event) => { draft[name] = event.target.value; } });
  const [who, why] = [input("who", { autocomplete: "off", placeholder: "ana" }), input("why", { autocomplete: "off", placeholder: "INC-731: the database is slow" })];
  [who.value, why.value] = [draft.who, draft.why];
  const publish = element("button", { type: "submit", class: "primary", disabled: true }, "Publish");
  const undo = element("button", { type: "button", disabled: true, onclick: () => { put(draft.original); area.focus(); } }, "Undo my changes");
  let wrong = 0;
  let timer = 0;
  let number = 0;
  let checked = null;
  let published_at = null;

  const numbers = () => {
    const lines = area.value.split("\n").length;
    gutter.replaceChildren(...Array.from({ length: lines }, (_, line) => [line + 1 === wrong ? element("span", { class: "wrong" }, String(line + 1)) : String(line + 1), "\n"]).flat());
    gutter.scrollTop = area.scrollTop;
  };
  const goTo = (line, column) => {
    const lines = area.value.split("\n");
    const at = lines.slice(0, line - 1).reduce((all, text) => all + text.length + 1, 0) + [...(lines[line - 1] ?? "")].slice(0, Math.max(0, (column ?? 1) - 1)).join("").length;
    area.focus();
    area.setSelectionRange(at, at);
    area.scrollTop = (line - 4) * parseFloat(getComputedStyle(area).lineHeight);
  };
  const buttons = () => {
    undo.disabled = !isDirty();
    publish.disabled = !(session.editable && isDirty() && checked === area.value);
    setText(base, draft.base === null ? "" : draft.base === 0 ? "no text is published yet" : `based on version ${draft.base}`);
  };
  const put = (text) => { area.value = text; changed(); };
  const changed = () => {
    draft.text = area.value;
    checked = null;
    numbers();
    buttons();
    clearTimeout(timer);
    timer = setTimeout(check, 300);
  };
  const check = async () => {
    const text = area.value;
    const mine = ++number;
    if (!isDirty()) {
      wrong = 0;
      numbers();
      problem.replaceChildren();
      return effect.replaceChildren(element("p", { class: "note" }, "No change."));
    }
    try {
      const { mistake, diff, notes, version } = await request("api/text/check", { toml: text });
      if (mine !== number) return;
      wrong = mistake?.line ?? 0;
      problem.replaceChildren(...(mistake ? [element("button", { type: "button", class: "link problem", onclick: () => mistake.line && goTo(mistake.line, mistake.column) }, mistake.message)] : []));
      effect.replaceChildren(...[notesBox(notes), diffBox(diff), element("p", { class: "note" }, `Compared with version ${version}, which is in force.`)].filter(Boolean));
      checked = mistake ? null : text;
    } catch (error) {
      problem.replaceChildren(failed(error));
    }
    numbers();
    buttons();
  };
  const load = (text) => {
    Object.assign(draft, { base: text.version, original: text.toml, text: text.toml });
    news.replaceChildren();
    conflict.replaceChildren();
    put(text.toml);
    if (draft.line) goTo(draft.line, 1);
    draft.line = 0;
  };
  const read = () => request("api/text").then(load).catch((error) => problem.replaceChildren(failed(error)));
  const showConflict = ({ present, yours, diff }) => {
    const side = (title, text, note) => panel(title, note ? element("p", { class: "note" }, note) : null, element("pre", { class: "text", tabindex: "0", role: "group", "aria-label": title }, text));
    const keep = () => {
      Object.assign(draft, { base: present.version, original: present.toml });
      conflict.replaceChildren();
      changed();
      area.focus();
    };
    const title = element("h2", { tabindex: "-1" }, `Conflict: version ${present.version} was published meanwhile`);
    conflict.replaceChildren(element("div", { class: "warning" }, title, element("p", {}, "Nothing of yours was published. Compare the texts, and choose.")),
      element("div", { class: "columns even" }, side(`In force: version ${present.version}`, present.toml, `${present.who} (claimed): ${present.why || "no reason"}`), side("Yours", yours)),
      panel("From theirs to yours", diffBox(diff)),
      element("p", { class: "actions" }, element("button", { type: "button", onclick: keep }, `Keep my text, on top of version ${present.version}`), element("button", { type: "button", onclick: () => load(present) }, `Take the text of version ${present.version}`)));
    title.focus();
  };
  const send = async (event) => {
    event.preventDefault();
    if (publish.disabled) return;
    publish.disabled = true;
    setText(outcome, "Publishing…");
    const toml = area.value;
    try {
      const { version } = await request("api/text/publish", { toml, if_version: draft.base, who: draft.who, why: draft.why });
      Object.assign(draft, { base: version, original: toml, text: area.value, why: "" });
      why.value = "";
      published_at = { version, at: performance.now() };
      setText(outcome, `Version ${version} is published.`);
      changed();
    } catch (error) {
      setText(outcome, "");
      if (error.status === 409 && error.present) return showConflict(error);
      const note = error.may_be_published ? " It may be published all the same: the history shows it." : "";
      problem.replaceChildren(failed({ message: error.message + note }));
      buttons();
    }
  };
  area.addEventListener("input", changed);
  area.addEventListener("scroll", () => { gutter.scrollTop = area.scrollTop; });
  main.replaceChildren(head("Edit the shared rules", base), news, conflict,
    element("form", { onsubmit: send }, element("div", { class: "columns even" },
      element("section", { class: "panel", "aria-label": "Editor" }, element("div", { class: "editor" }, gutter, area), problem,
        session.editable ? element("div", { class: "fields" }, field("Who, as the history will have it", who), field("Why", why)) : element("p", { class: "note" }, "Read only: the dashboard has no operator's URL."),
        session.editable ? element("p", { class: "actions" }, publish, undo) : null, outcome),
      panel("Effect", effect))));
  if (draft.base === null) read();
  else { area.value = draft.text; changed(); if (draft.line) goTo(draft.line, 1), (draft.line = 0); else if (!isDirty()) read(); }
  return {
    update() {
      if (published_at) {
        const { current, all, none } = fleetText(published_at.version);
        const others = none ? `; ${none} follow no shared rules` : "";
        if (all) setText(outcome, `Version ${published_at.version} is in force in ${current} of ${all} limiters${current === all ? ` after ${duration(published_at.after ??= performance.now() - published_at.at)}` : ""}${others}.`);
        else setText(outcome, `Version ${published_at.version} is published. No limiter that lives follows the shared rules.`);
      }
      if (draft.base !== null && state.published > draft.base && !conflict.firstChild) {
        if (!isDirty()) return void read();
        if (!news.firstChild) news.append(element("p", { class: "warning", role: "alert" }, `Version ${state.published} was published meanwhile. Your text is based on version ${draft.base}: publishing it will show both.`));
      }
    },
    close() { clearTimeout(timer); number += 1; },
  };
}

// --- history -----------------------------------------------------------------------------------------------------

function historyView() {
  if (!session.trusted) return main.replaceChildren(head("History"), needsToken("Earlier texts are shown")), { update() {} };
  const list = element("ol", { class: "versions" });
  const problem = element("p", { class: "problem", role: "alert" });
  const outcome = element("p", { role: "status" });
  let newest = null;
  const read = async () => {
    try {
      const { versions } = await request("api/history");
      newest = versions[0]?.version ?? 0;
      list.replaceChildren(...versions.map((version, place) => entry(version, place === 0)));
      setText(problem, versions.length ? "" : "No text was published yet.");
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
      if (!detail.hidden) await open(version, isPresent, detail);
    });
    return element("li", {}, element("div", { class: "line" }, element("strong", {}, `v${version}`), time(when), element("span", { title: "a claim: all operators have one token" }, who || "unknown"),
      element("span", { class: "mono" }, added === undefined ? "" : `+${added} −${removed}`), element("span", { class: "why" }, why || "no reason"), isPresent ? badge("good", "in force") : null, toggle), detail);
  };
  const open = async (version, isPresent, detail) => {
    try {
      const answer = await request(`api/history/${version}`);
      if (isPresent) return detail.replaceChildren(element("pre", { class: "text", tabindex: "0", role: "group", "aria-label": `Text of version ${version}` }, answer.toml));
      const why = element("input", { type: "text", autocomplete: "off" });
      const button = element("button", { type: "submit", class: "primary" }, `Roll back to version ${version}`);
      const refused = element("p", { class: "problem", role: "alert" });
      const send = async (event) => {
        event.preventDefault();
        button.disabled = true;
        try {
          const done = await request("api/text/rollback", { version, if_version: answer.present, who: draft.who, why: why.value || `back to version ${version}` });
          setText(outcome, `Version ${done.version} is published: the text of version ${version}.`);
          await read();
        } catch (error) {
          setText(refused, error.status === 409 ? `${error.message}: compare again` : error.message);
          button.disabled = false;
        }
      };
      const form = session.editable ? element("form", { onsubmit: send }, field("Why", why), element("p", { class: "actions" }, button), refused) : null;
      detail.replaceChildren(...[element("p", { class: "note" }, `A rollback would change this of version ${answer.present}:`), notesBox(answer.notes), diffBox(answer.diff), form].filter(Boolean));
    } catch (error) {
      detail.replaceChildren(failed(error));
    }
  };
  main.replaceChildren(head("History"), element("section", { class: "panel", "aria-label": "Versions" }, element("p", { class: "note" }, "Authors are claims: a text has the name that its writer has given."), outcome, problem, list));
  read();
  return { update() { if (newest !== null && state.published > newest) newest = state.published, read(); } };
}

// --- views -------------------------------------------------------------------------------------------------------

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
  if (isNavigation) main.querySelector("h1")?.focus();
}

addEventListener("hashchange", () => {
  if (location.hash === "#main") return main.focus();
  show(true);
});

show(false);
follow();
