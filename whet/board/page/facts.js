// @ts-check
import { h, number } from "./dom.js";
import { t } from "./language.js";

const RUN = /(<[^<>\s]{1,40}>)\1{7,}/g; // one special token again and again: the squares of a picture

/**
 * Scores, advantage, length and state of a sample in a line.
 * @param {any} sample
 */
export function facts(sample) {
  const signed = sample.advantage > 0 ? "positive" : sample.advantage < 0 ? "negative" : "quiet";
  const scores = Object.entries(sample.scores).map(([name, value]) => h("span", { class: "quiet" }, `${name} ${number(value)}`));
  return h(
    "div",
    { class: "facts" },
    h("strong", {}, `${t("reward")} ${number(sample.reward)}`),
    ...scores,
    h("span", { class: signed }, `${t("advantage")} ${number(sample.advantage)}`),
    h("span", { class: "quiet" }, t("{0} tokens", sample.length)),
    h("span", { class: sample.finish === "stop" ? "quiet" : "negative" }, sample.finish || ""),
    sample.turns > 1 ? h("span", { class: "quiet" }, t("{0} turns", sample.turns)) : null,
    sample.failure ? h("span", { class: "negative" }, t("no score: {0}", sample.failure)) : null,
    sample.dropped ? h("span", { class: "negative" }, t("left out by a filter")) : null,
  );
}

/**
 * Text of a sample, with a note where only its beginning is here.
 * @param {any} sample
 * @param {"prompt"|"response"|"answer"} name
 * @param {string} [kind]
 */
export function words(sample, name, kind = "cut") {
  const cut = sample[`${name}_chars`] > [...sample[name]].length;
  const note = cut ? h("p", { class: "quiet" }, t("the first {0} of {1} characters", sample[name].length, sample[`${name}_chars`])) : null;
  const text = name === "prompt" ? sample[name].replace(RUN, (/** @type {string} */ all, /** @type {string} */ one) => `${one} × ${all.length / one.length}`) : sample[name];
  return h("div", {}, h("pre", { class: `text ${kind}`, tabindex: kind === "cut" ? 0 : null }, text), note);
}
