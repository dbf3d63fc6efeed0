// @ts-check
import { ask, send } from "./api.js";
import { fill, h, number } from "./dom.js";
import { t } from "./language.js";

const POLL_MS = 700;

/**
 * The box below a sample: draw it again, branch it at a token, list likeliest alternatives. Work waits in the board's
 * queue and is done by a process of its own.
 * @param {string} run
 * @param {{split: string, step: number, row: number}} sample
 * @param {any} tokens
 * @param {(alternatives: any[][]) => void} learnt shows alternatives with the tokens
 * @param {boolean} live the run is going on, and its own engine may be asked
 */
export function resampleBox(run, sample, tokens, learnt, live) {
  const answer = h("div", { "aria-live": "polite" });
  const label = (/** @type {string} */ text, /** @type {HTMLElement} */ input) => h("label", {}, t(text), input);
  const input = (/** @type {Record<string, any>} */ attributes) => /** @type {HTMLInputElement} */ (h("input", attributes));
  const at = input({ type: "number", min: 0, value: 0, name: "at" });
  const token = input({ type: "text", size: 8, name: "text", placeholder: t("none") });
  const heat = input({ type: "number", min: 0, step: "any", name: "temperature", placeholder: t("the run's") });
  const n = input({ type: "number", min: 1, max: 64, value: 4, name: "n" });
  const prompt = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 3, name: "prompt", placeholder: t("the sample's") }));
  const own = input({ type: "checkbox", name: "live" });
  /** @type {number|null} */
  let chosen = null; // id of an alternative that was clicked

  const start = async (/** @type {Record<string, any>} */ request, /** @type {(found: any) => HTMLElement} */ show) => {
    try {
      const { job } = await send(`runs/${run}/resample`, { ...sample, ...request });
      const stop = h("button", { type: "button", on: { click: () => send(`jobs/${job}/cancel`, {}) } }, t("Cancel"));
      let found = await ask(`jobs/${job}`);
      while (found.state === "waiting" || found.state === "running") {
        const text = found.state === "running" ? t("drawing; the first time weights are loaded") : t("waiting: {0} before this one", found.before);
        fill(answer, h("p", { class: "quiet", role: "status" }, text, " ", stop));
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
        found = await ask(`jobs/${job}`);
      }
      if (found.state !== "done") throw new Error(found.error || t("cancelled"));
      fill(answer, ...found.notes.map((/** @type {string} */ note) => h("p", { class: found.exact ? "quiet" : "notice" }, note)), show(found));
    } catch (error) {
      fill(answer, h("p", { class: "notice" }, error instanceof Error ? error.message : String(error)));
    }
  };
  const branch = () =>
    start(
      {
        kind: "branch",
        at: Number(at.value) || 0,
        ...(chosen !== null ? { token: chosen } : token.value ? { text: token.value } : {}),
        ...(heat.value ? { temperature: Number(heat.value) } : {}),
        ...(prompt.value ? { prompt: prompt.value } : {}),
        n: Number(n.value) || 1,
        ...(own.checked ? { live: true } : {}),
      },
      continuations,
    );
  const alternatives = (/** @type {any} */ found) => {
    learnt(found.alternatives);
    return h("p", { class: "quiet" }, t("Numbers under the pointer now name the likeliest tokens."));
  };
  const button = (/** @type {string} */ text, /** @type {() => any} */ act) => h("button", { type: "button", on: { click: act } }, t(text));
  token.addEventListener("input", () => (chosen = null));
  const element = h(
    "section",
    { class: "row", "aria-label": t("Resample") },
    h("h2", {}, t("Resample")),
    h("p", {}, button("Draw it again", () => start({ kind: "again" }, again)), " ", button("Likeliest alternatives", () => start({ kind: "tokens" }, alternatives))),
    h("div", { class: "controls" }, label("Keep the first tokens", at), label("then this token", token), label("Temperature", heat), label("Continuations", n), live ? h("label", { class: "inline" }, own, t("by the run itself, after its current step")) : null),
    h("details", {}, h("summary", {}, t("another prompt")), prompt),
    button("Branch", branch),
    answer,
  );
  return { element, choose: (/** @type {number} */ place) => ((at.value = String(place)), (chosen = null), (token.value = ""), at.focus()) };
}

/** @param {any} found */
function again(found) {
  const drawn = found.drawn.map((/** @type {any} */ token, /** @type {number} */ i) => {
    const before = found.recorded?.[i];
    const differs = found.recorded && (!before || before.id !== token.id);
    return h("span", { class: `token ${differs ? "diff-right" : found.was_drawn[i] ? "" : "foreign"}`, title: `${token.id}` }, token.text);
  });
  const kind = found.compared === "tokens" ? t("token by token") : t("by text and length");
  const text = found.equal ? t("Equal, {0}: {1} tokens.", kind, drawn.length) : found.first_difference === null ? t("Different.") : t("Different from token {0} on.", found.first_difference + 1);
  return h("div", {}, h("p", { class: found.equal ? "positive" : "negative" }, h("strong", {}, text)), h("pre", { class: "text tokens", tabindex: 0 }, ...drawn));
}

/** @param {any} found */
function continuations(found) {
  const cards = found.continuations.map((/** @type {any} */ each) => {
    const spans = each.tokens.map((/** @type {any} */ token, /** @type {number} */ i) => h("span", { class: i < found.common ? "token foreign" : "token", title: `${token.id}: ${number(token.log_prob)}` }, token.text));
    const scores = Object.entries(each.scores).filter(([name]) => name !== "overall").map(([name, value]) => h("span", { class: "quiet" }, `${name} ${number(/** @type {any} */ (value))}`));
    const head = h("div", { class: "facts" }, h("strong", {}, `${t("reward")} ${number(each.reward)}`), ...scores, h("span", { class: "quiet" }, t("{0} tokens", each.tokens.length)), h("span", { class: "quiet" }, each.failure || each.finish));
    return h("div", { class: "card" }, head, h("pre", { class: "text cut", tabindex: 0 }, ...spans));
  });
  return h("div", { class: "beside", tabindex: 0, "aria-label": t("Continuations") }, ...cards);
}
