// @ts-check
import { ask } from "./api.js";
import { fill, h, number } from "./dom.js";
import { facts, words } from "./facts.js";
import { t } from "./language.js";
import { address } from "./place.js";
import { resampleBox } from "./resample.js";
import { tokenBox } from "./tokens.js";

const PROMPT = -1; // place of pictures that belong to the prompt

/**
 * Sample: one response with its tokens, scores and notes, and how it comes out when it is drawn again.
 * @param {import("./main.js").View} view
 */
export async function showSample(view) {
  const { query, run } = view;
  const [split, step, row] = [query.get("split") || "train", query.get("step"), query.get("row")];
  if (step === null || row === null) {
    fill(view.element, h("p", { class: "quiet" }, t("Choose a sample in Groups or Samples.")));
    return null;
  }
  const sample = await ask(`runs/${run}/sample`, { split, step, row });
  const notes = Object.entries(sample.notes).map(([name, text]) =>
    h("section", {}, h("h2", {}, t("Note of {0}", name)), h("pre", { class: "text", tabindex: 0 }, String(text))),
  );
  const tokens = h("div", {});
  const running = (await view.runs()).some((each) => each.id === run && each.status === "running");
  const resample = view.about.resample ? resampleBox(run, { split, step: Number(step), row: Number(row) }, sample.tokens, learnt, view.about.control && running) : null;
  const draw = () => fill(tokens, sample.tokens ? tokenBox(sample.tokens, (place) => resample?.choose(place), (place) => pictures(run, sample, place)) : words(sample, "response", "whole"));
  /** @param {any[][]} alternatives */
  function learnt(alternatives) {
    if (!sample.tokens) return;
    sample.tokens.alternatives = alternatives;
    draw();
  }
  draw();
  const links = [
    h("a", { href: address("groups", { run, split, step }) }, t("groups of this step")),
    h("a", { href: address("samples", { run, split, uid: sample.uid, order: "step" }) }, t("this prompt over training")),
    h("a", { href: address("compare", { run, split, uid: sample.uid, a: `${step}-${row}` }) }, t("compare")),
  ];
  fill(
    view.element,
    h("div", { class: "facts" }, h("strong", {}, `${t("step {0}, sample {1}", sample.step, sample.index ?? sample.row)}, ${sample.uid}`), ...links),
    facts(sample),
    h("p", { class: "quiet" }, t("policy version {0}, turns: {1}", number(sample.version), number(sample.turns))),
    h("h2", {}, t("Prompt")),
    words(sample, "prompt"),
    pictures(run, sample, PROMPT),
    h("h2", {}, t("Response")),
    tokens,
    sample.tokens ? null : h("p", { class: "quiet" }, t("trainer.log_token_details=true keeps tokens and their numbers of every sample.")),
    ...(sample.answer ? [h("h2", {}, t("Answer")), words(sample, "answer", "whole")] : []),
    origin(sample),
    ...notes,
    resample ? resample.element : null,
  );
  return null;
}

/**
 * The pictures that came at a place: with the prompt, or before a token of the response.
 * @param {string} run
 * @param {any} sample
 * @param {number} place
 */
function pictures(run, sample, place) {
  const found = sample.pictures.filter((/** @type {any} */ each) => each.at === place);
  if (!found.length) return null;
  const name = place === PROMPT ? t("picture of the prompt") : t("picture of the episode");
  return h("div", { class: "pictures" }, ...found.map((/** @type {any} */ each) => h("img", { src: `api/runs/${run}/pictures/${each.file}`, alt: name, loading: "lazy" })));
}

/**
 * Where the reward came from: every score, and the turns of an episode.
 * @param {any} sample
 */
function origin(sample) {
  const turns = (sample.episode.turn_rewards || []).map((/** @type {number} */ value, /** @type {number} */ i) => [t("turn {0}", i + 1), value]);
  const info = Object.entries(sample.episode).filter(([name]) => name.startsWith("info/") || name === "end");
  const rows = [...Object.entries(sample.scores), ...turns, ...info].map(([name, value]) =>
    h("tr", {}, h("td", {}, name), h("td", { class: "number" }, typeof value === "number" ? number(value) : String(value ?? "–"))),
  );
  return rows.length ? h("section", {}, h("h2", {}, t("Where the reward came from")), h("table", { class: "narrow" }, h("tbody", {}, ...rows))) : null;
}
