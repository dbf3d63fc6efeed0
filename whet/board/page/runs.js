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
  const refresh = async () => {
    const runs = await view.runs();
    if (!runs.length) fill(table, h("p", { class: "quiet" }, t("There are no runs in these folders yet.")));
    else fill(table, h("table", {}, head(), h("tbody", {}, ...runs.map(row))));
    const chosen = runs.find((run) => run.id === view.query.get("run"));
    if (chosen) await showFindings(findings, chosen, view.about.control && chosen.status === "running");
  };
  await refresh();
  return refresh;
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
    : h("span", { class: "quiet" }, 0);
  const curve = run.spark.points.length > 1 ? sparkline(run.spark.points, `${run.spark.metric} over steps`) : null;
  return h(
    "tr",
    {},
    h("td", { class: "name" }, h("a", { href: address("curves", { runs: run.id }), title: run.folder }, run.name)),
    h("td", { class: `status-${run.status}` }, t(run.status)),
    h("td", { class: "number" }, steps),
    h("td", {}, curve),
    h("td", { class: "number" }, number(latest["reward/overall"])),
    h("td", { class: "number" }, number(latest["reward/accuracy"])),
    h("td", { class: "number" }, number(latest["val/reward"])),
    h("td", { class: "number" }, findings),
    h("td", {}, settings["algorithm.adv_estimator"]),
    h("td", { class: "number" }, settings["worker.actor.optim.lr"]),
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
