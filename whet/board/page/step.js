// @ts-check
import { ask } from "./api.js";
import { fill, h, number } from "./dom.js";
import { chooser, form } from "./filters.js";
import { histogram } from "./histogram.js";
import { t } from "./language.js";
import { address, go } from "./place.js";
import { timelineChart } from "./timeline.js";

/**
 * Step: where the time of a step went, and how its samples are spread.
 * @param {import("./main.js").View} view
 */
export async function showStep(view) {
  const { query, run } = view;
  const split = query.get("split") || "train";
  const found = await ask(`runs/${run}/step`, { split, step: query.get("step") });
  const steps = found.steps.map((/** @type {number} */ step) => /** @type {[string, string]} */ ([String(step), String(step)]));
  const choice = form(
    (values) => go("step", { run, ...values }),
    chooser(t("Split"), "split", split, [["train", t("training")], ["val", t("validation")]]),
    chooser(t("Step"), "step", String(found.step), steps),
  );
  const names = ["length", "reward", "advantage"].filter((name) => found.histograms[name]);
  const bars = names.map((name) => histogram(name, found.histograms[name], { run, split, step: found.step }));
  const links = h(
    "div",
    { class: "facts" },
    h("a", { href: address("groups", { run, split, step: found.step }) }, t("groups of this step")),
    h("a", { href: address("samples", { run, split, step: found.step }) }, t("samples of this step")),
  );
  fill(
    view.element,
    choice,
    links,
    h("h2", {}, t("Timeline")),
    found.timeline ? timelineChart(found.timeline) : h("p", { class: "quiet" }, t("This step has no timeline (timeline.jsonl).")),
    names.length ? h("div", { class: "charts" }, ...bars) : h("p", { class: "quiet" }, t("This step has no samples.")),
    h("h2", {}, t("Metrics")),
    metrics(found.metrics),
  );
  return null;
}

/** @param {Record<string, number>} values */
function metrics(values) {
  const rows = Object.entries(values).map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", { class: "number" }, number(value))));
  return h("details", {}, h("summary", {}, t("{0} metrics", rows.length)), h("div", { class: "wide" }, h("table", { class: "narrow" }, h("tbody", {}, ...rows))));
}
