// @ts-check
import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { facts, words } from "./facts.js";
import { chooser, field, form, notices, pages } from "./filters.js";
import { t } from "./language.js";
import { address, go } from "./place.js";

const SIZE = 20;
/** @type {[string, string][]} */
const ORDERS = [["-step", "newest first"], ["step", "oldest first"], ["-reward", "best first"], ["reward", "worst first"],
  ["-length", "longest first"], ["length", "shortest first"], ["-advantage", "highest advantage"], ["advantage", "lowest advantage"]];

/**
 * Samples: every sample of a run, by text, score and length.
 * @param {import("./main.js").View} view
 */
export async function showSamples(view) {
  const { query, run } = view;
  const split = query.get("split") || "train";
  const names = ["split", "step", "uid", "text", "min_reward", "max_reward", "min_length", "max_length", "version", "order"];
  const now = Object.fromEntries(names.map((name) => [name, query.get(name) || ""]));
  const offset = Number(query.get("offset")) || 0;
  const turn = (/** @type {number} */ to) => go("samples", { run, ...now, offset: to });
  const number = { type: "number", step: "any" };
  const search = form(
    (values) => go("samples", { run, ...values }),
    chooser(t("Split"), "split", split, [["train", t("training")], ["val", t("validation")]]),
    field(t("Text"), "text", query, { type: "search" }),
    field(t("Step"), "step", query, { type: "number", min: 0 }),
    field(t("Reward from"), "min_reward", query, number),
    field(t("to"), "max_reward", query, number),
    field(t("Tokens from"), "min_length", query, { type: "number", min: 0 }),
    field(t("to"), "max_length", query, { type: "number", min: 0 }),
    field(t("Row of the data"), "uid", query, { type: "text" }),
    field(t("Policy version"), "version", query, { type: "number", min: 0 }),
    chooser(t("Order"), "order", now.order || "-step", ORDERS.map(([value, text]) => [value, t(text)])),
  );
  const list = h("div", {}, h("p", { class: "quiet" }, t("reading…")));
  fill(view.element, search, list);
  const found = await ask(`runs/${run}/samples`, { ...now, order: now.order || "-step", split, offset, limit: SIZE });
  const rows = found.rows.map((/** @type {any} */ sample) =>
    h(
      "article",
      { class: "row" },
      h(
        "div",
        { class: "facts" },
        h("a", { href: address("sample", { run, split, step: sample.step, row: sample.row }) }, t("step {0}, sample {1}", sample.step, sample.row)),
        h("a", { href: address("samples", { run, split, uid: sample.uid, order: "step" }) }, sample.uid),
      ),
      facts(sample),
      words(sample, "response"),
      h("details", {}, h("summary", {}, t("prompt and answer")), words(sample, "prompt"), words(sample, "answer")),
    ),
  );
  const bar = () => pages(found.total, offset, SIZE, "samples", turn);
  fill(list, notices(found.damaged), bar(), ...rows, rows.length > 3 ? bar() : null);
  return null;
}
