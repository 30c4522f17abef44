// The chart of the last 15 minutes of a rule.

import { element, failed, setText } from "./elements.js";
import { clock, rate, request, state } from "./feed.js";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function chart(rule) {
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
  let isClosed = false;
  request(`api/rates/${encodeURIComponent(rule)}`).then((answer) => {
    if (isClosed) return;
    points = answer.points;
    build();
    size.observe(place);
    update();
  }).catch((error) => place.replaceChildren(failed(error)));
  const close = () => { isClosed = true; scheme.removeEventListener("change", build); size.disconnect(); plot?.destroy(); };
  return { node: element("div", {}, legend, place), update, close };
}
