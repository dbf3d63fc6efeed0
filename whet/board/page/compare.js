// @ts-check
import { ask } from "./api.js";
import { diff, words } from "./diff.js";
import { fill, h, number } from "./dom.js";
import { facts, words as text } from "./facts.js";
import { chooser, field, form } from "./filters.js";
import { t } from "./language.js";
import { address, go } from "./place.js";

const MOST = 100;

/**
 * Compare: two samples of one prompt, of two runs or of two steps, with the difference of their texts.
 * @param {import("./main.js").View} view
 */
export async function showCompare(view) {
  const { query, run } = view;
  const [split, other] = [query.get("split") || "train", query.get("other") || run];
  const runs = (await view.runs()).map((each) => /** @type {[string, string]} */ ([each.id, each.name]));
  const uid = query.get("uid") || (await anyPrompt(run, split));
  const [left, right] = await Promise.all([samplesOf(run, split, uid), samplesOf(other, split, uid)]);
  const [a, b] = [pick(left, query.get("a"), 0), pick(right, query.get("b"), -1)];
  const keep = (/** @type {any} */ values) => go("compare", { run, ...values, a: values.uid === uid ? values.a : "", b: values.uid === uid && values.other === other ? values.b : "" });
  const choice = form(
    keep,
    chooser(t("Split"), "split", split, [["train", t("training")], ["val", t("validation")]]),
    field(t("Row of the data"), "uid", new URLSearchParams({ uid }), { type: "text" }),
    chooser(t("First sample"), "a", a ? name(a) : "", left.map(option)),
    chooser(t("Other run"), "other", other, runs),
    chooser(t("Second sample"), "b", b ? name(b) : "", right.map(option)),
  );
  if (!a || !b) {
    fill(view.element, choice, h("p", { class: "quiet" }, t("There is no sample of this row in one of the runs.")));
    return null;
  }
  const link = (/** @type {any} */ sample, /** @type {string} */ of) =>
    h("a", { href: address("sample", { run: of, split, step: sample.step, row: sample.row }) }, t("step {0}, sample {1}", sample.step, sample.row));
  const sides = h(
    "div",
    { class: "pair" },
    h("div", {}, link(a, run), facts(a), text(a, "response")),
    h("div", {}, link(b, other), facts(b), text(b, "response")),
  );
  const parts = diff(words(a.response), words(b.response)).map((part) => h("span", { class: `diff-${part.kind}` }, part.text));
  const same = a.response === b.response && a.response_chars === a.response.length;
  const note = same ? t("The texts are the same.") : t("Struck out: only in the first. Underlined: only in the second.");
  const change = h("p", {}, `${t("reward")} ${number(a.reward)} → ${number(b.reward)}, ${t("length")} ${number(a.length)} → ${number(b.length)}`);
  const prompt = h("details", {}, h("summary", {}, t("prompt")), text(a, "prompt"));
  fill(view.element, choice, prompt, change, h("h2", {}, t("Difference")), h("p", { class: "quiet" }, note), h("pre", { class: "text row", tabindex: 0 }, ...parts), sides);
  return null;
}

/** @param {any} sample */
const name = (sample) => `${sample.step}-${sample.row}`;
/**
 * @param {any} sample
 * @returns {[string, string]}
 */
const option = (sample) => [name(sample), t("step {0}, sample {1}: reward {2}", sample.step, sample.index ?? sample.row, number(sample.reward))];

/**
 * @param {any[]} samples
 * @param {string|null} wanted
 * @param {number} otherwise
 */
const pick = (samples, wanted, otherwise) => samples.find((each) => name(each) === wanted) ?? samples.at(otherwise);

/**
 * @param {string} run
 * @param {string} split
 * @param {string} uid
 * @returns {Promise<any[]>}
 */
async function samplesOf(run, split, uid) {
  return (await ask(`runs/${run}/samples`, { split, uid, order: "step", limit: MOST })).rows;
}

/**
 * @param {string} run
 * @param {string} split
 */
async function anyPrompt(run, split) {
  return (await ask(`runs/${run}/samples`, { split, order: "step", limit: 1 })).rows[0]?.uid ?? "";
}
