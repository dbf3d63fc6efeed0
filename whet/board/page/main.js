// @ts-check
import { ask } from "./api.js";
import { showCompare } from "./compare.js";
import { showConfig } from "./config.js";
import { showCurves } from "./curves.js";
import { fill, h } from "./dom.js";
import { showGroups } from "./groups.js";
import { choose, current, t } from "./language.js";
import { address, go, place } from "./place.js";
import { showRuns } from "./runs.js";
import { showSample } from "./sample.js";
import { showSamples } from "./samples.js";
import { showStep } from "./step.js";

/**
 * What a view is given. It returns a function that brings it up to date, or null if it stays as it is.
 * @typedef {{
 *   element: HTMLElement, query: URLSearchParams, run: string, about: {resample: boolean, control: boolean},
 *   runs: () => Promise<any[]>, attempt: (act: () => Promise<any>) => Promise<any>,
 * }} View
 */

const POLL_MS = 5000;
const WAIT_MS = 150; // after which a view says that it is reading
/** @type {Record<string, [string, (view: View) => Promise<(() => Promise<any>)|null>]>} */
const VIEWS = {
  runs: ["Runs", showRuns],
  curves: ["Curves", showCurves],
  step: ["Step", showStep],
  groups: ["Groups", showGroups],
  samples: ["Samples", showSamples],
  sample: ["Sample", showSample],
  compare: ["Compare", showCompare],
  config: ["Config", showConfig],
};

const element = /** @type {HTMLElement} */ (document.getElementById("view"));
const problem = /** @type {HTMLElement} */ (document.getElementById("problem"));
const choice = /** @type {HTMLSelectElement} */ (document.getElementById("run"));
/** @type {(() => Promise<any>)|null} */
let refresh = null;
let chosen = "";
/** @type {any} */
let about = null; // what this address may start
let shown = 0; // counts views, so that the answer to an older one is not taken for the newest

/** @param {() => Promise<any>} act */
async function attempt(act) {
  try {
    const result = await act();
    problem.hidden = true;
    return result;
  } catch (error) {
    problem.textContent = error instanceof Error ? error.message : String(error);
    problem.hidden = false;
    return null;
  }
}

async function runs() {
  const found = await ask("runs");
  if (!found.some((/** @type {any} */ run) => run.id === chosen)) chosen = found[0]?.id ?? "";
  const names = found.map((/** @type {any} */ run) => h("option", { value: run.id, selected: run.id === chosen }, run.name));
  if (choice.options.length !== names.length || choice.value !== chosen) fill(choice, ...names);
  return found;
}

async function show() {
  const { view, query } = place();
  if (view === "view") return; // the link that skips the tabs
  const [, draw] = VIEWS[view] ?? VIEWS.runs;
  const mine = ++shown;
  refresh = null;
  const own = h("div", {});
  fill(element, own);
  const waiting = setTimeout(() => own.hasChildNodes() || fill(own, h("p", { class: "quiet", role: "status" }, t("reading…"))), WAIT_MS);
  const next = await attempt(async () => {
    const wanted = query.get("run") || (query.get("runs") || "").split(",")[0];
    if (wanted) chosen = wanted;
    about ??= await ask("about");
    const found = await runs();
    tabs(view);
    if (!found.length && view !== "runs") return fill(own, h("p", {}, t("There are no runs in these folders yet.")));
    return await draw({ element: own, query, run: chosen, about, runs, attempt });
  });
  clearTimeout(waiting);
  if (next === null && own.childElementCount === 1 && own.querySelector("[role=status]")) fill(own); // it failed: #problem says how
  if (mine === shown) refresh = typeof next === "function" ? next : null;
}

/** @param {string} current */
function tabs(current) {
  fill(/** @type {HTMLElement} */ (document.getElementById("run-label")), document.createTextNode(t("Run")));
  const links = Object.entries(VIEWS).map(([name, [label]]) =>
    h("a", { href: address(name, name === "runs" ? {} : { run: chosen }), "aria-current": name === current ? "page" : null }, t(label)),
  );
  fill(/** @type {HTMLElement} */ (document.getElementById("tabs")), ...links);
}

choice.addEventListener("change", () => {
  const { view, query } = place();
  const kept = view === "runs" ? {} : Object.fromEntries([...query].filter(([name]) => ["split", "metrics", "x", "smooth", "log", "bands"].includes(name)));
  go(view === "sample" ? "groups" : view, { ...kept, run: choice.value });
});
const language = /** @type {HTMLSelectElement} */ (document.getElementById("language"));
language.value = current();
choose(current());
language.addEventListener("change", () => {
  choose(language.value);
  show();
});
window.addEventListener("hashchange", show);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => refresh && attempt(refresh));
setInterval(() => {
  if (refresh && !document.hidden) attempt(refresh);
}, POLL_MS);
show();
