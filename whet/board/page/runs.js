// @ts-check
import { ask } from "./api.js";
import { fill, h, number } from "./dom.js";
import { address } from "./place.js";
import { controlBox } from "./control.js";
import { t } from "./language.js";
import { sparkline } from "./sparkline.js";

const COLUMNS = ["run", "state", "step", "curve", "reward", "accuracy", "validation", "findings", "algorithm", "lr"];

/**
 * Runs: a table with state, curve and findings, and below it what is wrong with the run that is chosen.
 * @param {import("./main.js").View} view
 */
export async function showRuns(view) {
  const table = h("div", { class: "wide" });
  const findings = h("section", { "aria-live": "polite" });
  fill(view.element, table, findings);
  let shown = "";
  const refresh = async () => {
    const runs = await view.runs();
    if (!runs.length) fill(table, h("p", { class: "quiet" }, t("There are no runs in these folders yet.")));
    else if (JSON.stringify(runs) !== shown) keepFocus(table, h("table", { class: "stack" }, head(), h("tbody", {}, ...runs.map(row))));
    shown = JSON.stringify(runs);
    const chosen = runs.find((run) => run.id === view.query.get("run"));
    if (chosen) await showFindings(findings, chosen, view.about.control && chosen.status === "running");
  };
  await refresh();
  return refresh;
}

/**
 * Replace what is in an element; a link that had the focus has it afterwards.
 * @param {HTMLElement} element
 * @param {HTMLElement} content
 */
function keepFocus(element, content) {
  const focused = element.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
  fill(element, content);
  const again = [...element.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
  again?.focus({ preventScroll: true });
}

/** @returns {HTMLElement} */
function head() {
  const numeric = ["step", "reward", "accuracy", "validation", "findings", "lr"];
  return h("thead", {}, h("tr", {}, ...COLUMNS.map((name) => h("th", { class: numeric.includes(name) && "number" }, t(name)))));
}

/** @param {any} run */
function row(run) {
  const { latest, settings } = run;
  const steps = run.max_steps ? `${number(run.step)} / ${run.max_steps}` : number(run.step);
  const findings = run.findings
    ? h("a", { href: address("runs", { run: run.id }), class: "negative" }, run.findings)
    : h("span", { class: "quiet" }, run.findings === null ? "…" : 0);
  const curve = run.spark.points.length > 1 ? sparkline(run.spark.points, `${run.spark.metric} over steps`) : null;
  const cell = (/** @type {string} */ name, /** @type {any} */ content, kind = "number") => h("td", { class: kind, "data-label": t(name) }, content);
  return h(
    "tr",
    {},
    h("td", { class: "name" }, h("a", { href: address("curves", { runs: run.id }), title: run.folder }, run.name)),
    cell("state", t(run.status), `status-${run.status}`),
    cell("step", steps),
    cell("curve", curve, "curve"),
    cell("reward", number(latest["reward/overall"])),
    cell("accuracy", number(latest["reward/accuracy"])),
    cell("validation", number(latest["val/reward"])),
    cell("findings", findings),
    cell("algorithm", settings["algorithm.adv_estimator"], ""),
    cell("lr", settings["worker.actor.optim.lr"]),
  );
}

/**
 * @param {HTMLElement} element
 * @param {any} run
 * @param {boolean} control
 */
async function showFindings(element, run, control) {
  const found = await ask(`runs/${run.id}/findings`);
  const rows = found.map((/** @type {any} */ each) =>
    h(
      "div",
      { class: "row" },
      h("strong", {}, each.rule),
      h("span", { class: "quiet" }, `  ${each.step ? t("steps {0} to {1}", each.step, each.until) : t("before the first step")}`),
      h("p", {}, each.sentence),
      evidence(each.evidence),
    ),
  );
  if (!element.querySelector(".pages") || !control) fill(element, control ? controlBox(run) : null, h("div", {}));
  const list = h("div", {}, h("h2", {}, t("Findings of {0}", run.name)), ...(rows.length ? rows : [h("p", { class: "quiet" }, t("None."))]));
  element.lastElementChild?.replaceWith(list); // buttons stay as they are, with what they said
}

/** @param {Record<string, [number, number|string][]>} curves */
function evidence(curves) {
  const lines = Object.entries(curves).map(([name, points]) =>
    h(
      "tr",
      {},
      h("td", {}, name),
      ...points.map(([step, value]) => h("td", { class: "number" }, `${step}: ${typeof value === "number" ? number(value) : value}`)),
    ),
  );
  return lines.length ? h("div", { class: "wide" }, h("table", {}, h("tbody", {}, ...lines))) : null;
}
