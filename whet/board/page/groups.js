// @ts-check
import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { facts, words } from "./facts.js";
import { chooser, form, notices, pages } from "./filters.js";
import { t } from "./language.js";
import { address, go } from "./place.js";

const SIZE = 5;

/**
 * Groups: the samples of each prompt of a step side by side.
 * @param {import("./main.js").View} view
 */
export async function showGroups(view) {
  const { query, run } = view;
  const split = query.get("split") || "train";
  const known = await ask(`runs/${run}/steps`, { split });
  const chosen = query.get("step") || String(known.steps.at(-1) ?? "");
  const offset = Number(query.get("offset")) || 0;
  const steps = known.steps.map((/** @type {number} */ step) => /** @type {[string, string]} */ ([String(step), String(step)]));
  const search = form(
    (values) => go("groups", { run, ...values, step: values.split === split ? values.step : "" }),
    chooser(t("Split"), "split", split, [["train", t("training")], ["val", t("validation")]]),
    chooser(t("Step"), "step", chosen, steps),
  );
  const list = h("div", {});
  fill(view.element, search, list);
  if (!chosen) {
    const text = t("This run has no samples of this split (trainer.log_samples, or no step yet).");
    fill(list, notices(known.damaged), h("p", { class: "quiet" }, text));
    return null;
  }
  const found = await ask(`runs/${run}/groups`, { split, step: chosen, offset, limit: SIZE });
  const bar = () => pages(found.total, offset, SIZE, "prompts", (to) => go("groups", { run, split, step: chosen, offset: to }));
  fill(list, notices(found.damaged), bar(), ...found.groups.map((/** @type {any[]} */ group) => card(group, run, split)), bar());
  return null;
}

/**
 * @param {any[]} group
 * @param {string} run
 * @param {string} split
 */
function card(group, run, split) {
  const first = group[0];
  const history = h("a", { href: address("samples", { run, split, uid: first.uid, order: "step" }) }, t("this prompt over training"));
  const samples = group.map((sample) =>
    h(
      "div",
      { class: "card" },
      h("a", { href: address("sample", { run, split, step: sample.step, row: sample.row }) }, t("sample {0}", sample.index ?? sample.row)),
      facts(sample),
      words(sample, "response"),
    ),
  );
  return h(
    "section",
    { class: "group" },
    h("div", { class: "prompt" }, h("div", { class: "facts" }, h("strong", {}, first.uid), history), words(first, "prompt"), answer(first)),
    h("div", { class: "beside", tabindex: 0, "aria-label": t("samples of this prompt") }, ...samples),
  );
}

/** @param {any} sample */
function answer(sample) {
  return sample.answer ? h("div", {}, h("span", { class: "label" }, t("answer")), words(sample, "answer")) : null;
}
