// @ts-check
import { ask } from "./api.js";
import { fill, h, number } from "./dom.js";
import { facts, words } from "./facts.js";
import { address } from "./place.js";
import { tokenBox } from "./tokens.js";

/**
 * Sample: one response with its tokens, scores and notes.
 * @param {import("./main.js").View} view
 */
export async function showSample(view) {
  const { query, run } = view;
  const [split, step, row] = [query.get("split") || "train", query.get("step"), query.get("row")];
  if (step === null || row === null) {
    fill(view.element, h("p", { class: "quiet" }, "Choose a sample in Groups or Samples."));
    return null;
  }
  const sample = await ask(`runs/${run}/sample`, { split, step, row });
  const notes = Object.entries(sample.notes).map(([name, text]) =>
    h("section", {}, h("h2", {}, `Note of ${name}`), h("pre", { class: "text" }, String(text))),
  );
  fill(
    view.element,
    h(
      "div",
      { class: "facts" },
      h("strong", {}, `step ${sample.step}, ${sample.uid}, sample ${sample.index ?? sample.row}`),
      h("a", { href: address("groups", { run, split, step }) }, "groups of this step"),
      h("a", { href: address("samples", { run, split, uid: sample.uid, order: "step" }) }, "this prompt over training"),
    ),
    facts(sample),
    h("p", { class: "quiet" }, `policy version ${number(sample.version)}, turns: ${number(sample.turns)}`),
    h("h2", {}, "Prompt"),
    words(sample, "prompt"),
    h("h2", {}, "Response"),
    sample.tokens ? tokenBox(sample.tokens) : words(sample, "response", "whole"),
    sample.tokens ? null : h("p", { class: "quiet" }, "trainer.log_token_log_probs=true keeps tokens and their log-probs."),
    h("h2", {}, "Answer"),
    words(sample, "answer", "whole"),
    ...notes,
  );
  return null;
}
