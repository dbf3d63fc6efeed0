// @ts-check
import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { drawChart } from "./chart.js";
import { banded } from "./bands.js";
import { t } from "./language.js";
import { pinButton, pinned } from "./pins.js";
import { address } from "./place.js";

const FIRST = ["reward/overall", "val/reward", "val/accuracy", "response_length/mean", "actor/entropy", "actor/grad_norm", "actor/loss"];
const AXES = { step: "step", seconds: "seconds trained", tokens: "tokens" };

/**
 * Curves: any metric of several runs; choices are kept in the address.
 * @param {import("./main.js").View} view
 */
export async function showCurves(view) {
  const runs = await view.runs();
  const state = read(view.query, runs.map((run) => run.id), view.run);
  const charts = h("div", { class: "charts" });
  const picker = h("div", { class: "picker" });
  /** @type {string[]} */
  let names = [];

  const keep = () => history.replaceState(null, "", address("curves", { ...state, log: state.log ? 1 : "", bands: state.bands ? 1 : "" }));
  const draw = async () => {
    const found = await Promise.all(state.runs.map((run) => ask(`runs/${run}/metrics`, { name: state.metrics })));
    const known = [...new Set(found.flatMap((each) => each.names))];
    if (!state.metrics.length && known.length) {
      state.metrics = FIRST.filter((name) => known.includes(name)).slice(0, 6);
      return await draw();
    }
    if (known.join() !== names.join()) {
      names = known;
      listMetrics();
    }
    const labels = state.runs.map((run) => runs.find((each) => each.id === run)?.name ?? run);
    await drawCharts(charts, state, found, labels);
  };
  const changed = () => {
    keep();
    return view.attempt(draw);
  };
  const listMetrics = () => {
    const wanted = search.value.toLowerCase();
    const shown = names.filter((name) => name.toLowerCase().includes(wanted));
    fill(picker, ...shown.map((name) => choice(name, state.metrics, name, changed)));
  };
  const search = /** @type {HTMLInputElement} */ (
    h("input", { type: "search", placeholder: t("find a metric"), "aria-label": t("Find a metric"), on: { input: () => listMetrics() } })
  );
  const runList = h("div", { class: "picker" }, ...runs.map((run) => choice(run.name, state.runs, run.id, changed)));
  const side = h("div", {}, h("h2", {}, t("Runs")), runList, h("h2", {}, t("Metrics")), search, picker);
  fill(view.element, h("div", { class: "split" }, side, h("div", {}, controls(state, changed), charts)));
  await draw();
  return draw;
}

/**
 * @param {URLSearchParams} query
 * @param {string[]} known
 * @param {string} chosen
 */
function read(query, known, chosen) {
  const kept = query.has("metrics") ? null : pinned(); // an address that names metrics has its own layout
  const own = kept ?? query;
  const listed = (query.get("runs") || "").split(",").filter((run) => known.includes(run));
  const first = known.includes(chosen) ? [chosen] : known.slice(0, 1);
  return {
    runs: listed.length ? listed : first,
    metrics: (own.get("metrics") || "").split(",").filter(Boolean),
    x: own.get("x") || "step",
    smooth: Math.min(0.99, Number(own.get("smooth")) || 0),
    log: own.get("log") === "1",
    bands: own.get("bands") === "1",
  };
}

/**
 * A checkbox that puts a value into a list and takes it out.
 * @param {string} label
 * @param {string[]} list
 * @param {string} value
 * @param {() => void} changed
 */
function choice(label, list, value, changed) {
  const act = (/** @type {Event} */ event) => {
    const on = /** @type {HTMLInputElement} */ (event.target).checked;
    if (on) list.push(value);
    else list.splice(list.indexOf(value), 1);
    changed();
  };
  return h("label", {}, h("input", { type: "checkbox", checked: list.includes(value), on: { change: act } }), h("span", {}, label));
}

/**
 * @param {any} state
 * @param {() => void} changed
 */
function controls(state, changed) {
  const set = (/** @type {string} */ name, /** @type {(input: any) => any} */ value) => (/** @type {Event} */ event) => {
    state[name] = value(event.target);
    changed();
  };
  const options = Object.entries(AXES).map(([name, label]) => h("option", { value: name, selected: state.x === name }, t(label)));
  return h(
    "div",
    { class: "controls" },
    h("label", {}, t("Horizontal axis"), h("select", { on: { change: set("x", (input) => input.value) } }, ...options)),
    h(
      "label",
      {},
      t("Smoothing"),
      h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: state.smooth, on: { input: set("smooth", (input) => Number(input.value)) } }),
    ),
    h("label", { class: "inline" }, h("input", { type: "checkbox", checked: state.log, on: { change: set("log", (input) => input.checked) } }), t("Log scale")),
    h("label", { class: "inline" }, h("input", { type: "checkbox", checked: state.bands, on: { change: set("bands", (input) => input.checked) } }), t("Seed bands")),
    pinButton(state),
  );
}

/**
 * @param {HTMLElement} element
 * @param {any} state
 * @param {any[]} found
 * @param {string[]} labels
 */
async function drawCharts(element, state, found, labels) {
  const wanted = state.metrics.filter((/** @type {string} */ name) => found.some((each) => each.names.includes(name)));
  const old = new Map([...element.children].map((each) => [/** @type {HTMLElement} */ (each).dataset.metric, each]));
  fill(element, ...wanted.map((/** @type {string} */ name) => old.get(name) ?? h("div", { class: "chart", "data-metric": name })));
  for (const name of wanted) {
    const place = /** @type {HTMLElement} */ ([...element.children].find((each) => /** @type {HTMLElement} */ (each).dataset.metric === name));
    const lines = found.map((each, i) => ({ label: labels[i], x: each.x[state.x], y: each.y[name] ?? [] }));
    await drawChart(place, name, t(AXES[/** @type {keyof AXES} */ (state.x)]), state.bands ? banded(lines) : lines, state.smooth, state.log);
  }
  if (!wanted.length) fill(element, h("p", { class: "quiet" }, t("Choose a run and a metric.")));
}
