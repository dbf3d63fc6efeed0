// @ts-check
import { h, number } from "./dom.js";
import { t } from "./language.js";

/**
 * @typedef {{
 *   ids: number[], by_model: boolean[], log_probs: (number|null)[], texts: string[]|null, total: number,
 *   old?: (number|null)[], new?: (number|null)[], entropies?: (number|null)[], advantages?: (number|null)[],
 *   versions?: (number|null)[], alternatives?: {id: number, text: string, log_prob: number|null}[][],
 * }} Tokens
 */

/**
 * What tokens can be coloured by: a share from 0 to 1 of the warm colour, or below 0 of the cold one.
 * @type {Record<string, {label: string, ends: [string, string], both?: boolean, has: (tokens: Tokens) => boolean, share: (tokens: Tokens, i: number) => number|null}>}
 */
const COLOURS = {
  log_prob: { label: "log-prob", ends: ["likely", "unlikely"], has: () => true, share: ({ log_probs }, i) => of(log_probs[i], (value) => 1 - Math.exp(Math.min(0, value))) },
  difference: {
    label: "learner minus sampler",
    ends: ["lower", "higher"],
    both: true,
    has: (tokens) => Boolean(tokens.new),
    share: ({ log_probs, new: now }, i) => of(now?.[i] ?? null, (value) => of(log_probs[i], (before) => Math.max(-1, Math.min(1, (value - before) * 5)))),
  },
  entropy: { label: "entropy", ends: ["certain", "uncertain"], has: (tokens) => Boolean(tokens.entropies), share: ({ entropies }, i) => of(entropies?.[i] ?? null, (value) => Math.min(1, value / 3)) },
  advantage: {
    label: "advantage",
    ends: ["positive", "negative"],
    both: true,
    has: (tokens) => Boolean(tokens.advantages),
    share: ({ advantages }, i) => of(advantages?.[i] ?? null, (value) => Math.max(-1, Math.min(1, -value / 2))),
  },
  version: {
    label: "policy version",
    ends: ["newest", "oldest"],
    has: (tokens) => Boolean(tokens.versions),
    share: ({ versions }, i) => {
      const known = (versions ?? []).filter((each) => each !== null);
      const [low, high] = [Math.min(...known), Math.max(...known)];
      return of(versions?.[i] ?? null, (value) => (high > low ? (high - value) / (high - low) : 0));
    },
  },
};

const LONG_RUN = 8; // of one token that a tool or the environment wrote, which is shown by its length

/**
 * @param {number|null} value
 * @param {(value: number) => number|null} act
 */
const of = (value, act) => (value === null ? null : act(value));

/**
 * Tokens in segments by who wrote them, coloured by a choice. Pointer, or arrow keys, show numbers; a click, or Enter,
 * chooses a token for `chosen`. `before` returns what stands before a token, such as a picture.
 * @param {Tokens} tokens
 * @param {(place: number) => void} [chosen]
 * @param {(place: number) => HTMLElement|null} [before]
 * @returns {HTMLElement}
 */
export function tokenBox(tokens, chosen, before) {
  const line = h("p", { class: "quiet", role: "status" }, t("Point at a token, or use the arrow keys in the box."));
  const box = h("div", { class: "tokens text", tabindex: 0, role: "group", "aria-label": t("tokens of the response") });
  /** @type {HTMLElement[]} */
  const spans = [];
  const several = tokens.by_model.some((own) => !own);
  tokens.ids.forEach((id, i) => {
    if (several && (i === 0 || tokens.by_model[i] !== tokens.by_model[i - 1])) {
      box.append(h("span", { class: "segment" }, tokens.by_model[i] ? t("written by the policy") : t("written by a tool or the environment")));
    }
    const media = before?.(i);
    if (media) box.append(media);
    spans.push(h("span", { class: tokens.by_model[i] ? "token" : "token foreign", "data-i": i }, tokens.texts ? tokens.texts[i] : `${id} `));
    box.append(spans[i]);
    if (!tokens.by_model[i]) shorten(tokens.ids, spans, i);
  });

  let at = -1;
  const point = (/** @type {number} */ i) => {
    spans[at]?.classList.remove("chosen");
    at = i;
    spans[i].classList.add("chosen");
    line.replaceChildren(h("span", {}, describe(tokens, i)));
  };
  const place = (/** @type {Event} */ event) => /** @type {HTMLElement} */ (event.target).dataset.i;
  box.addEventListener("pointerover", (event) => place(event) !== undefined && point(Number(place(event))));
  box.addEventListener("click", (event) => place(event) !== undefined && chosen?.(Number(place(event))));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && at >= 0) return chosen?.(at);
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move === undefined || !spans.length) return;
    event.preventDefault();
    point(Math.min(spans.length - 1, Math.max(0, at + move)));
    spans[at].scrollIntoView({ block: "nearest" });
  });

  const scale = h("span", {});
  const paint = (/** @type {string} */ name) => {
    const { ends, share, both } = COLOURS[name];
    spans.forEach((span, i) => {
      const value = share(tokens, i);
      span.style.setProperty("--p", String(Math.max(0, value ?? 0)));
      span.style.setProperty("--n", String(Math.max(0, -(value ?? 0))));
    });
    const cut = tokens.total > tokens.ids.length ? t(", the first {0} are shown", tokens.ids.length) : "";
    scale.replaceChildren(` ${t(ends[0])} `, h("span", { class: both ? "scale both" : "scale" }), ` ${t(ends[1])}; ${t("{0} tokens", tokens.total)}${cut}`);
  };
  const options = Object.entries(COLOURS).filter(([, { has }]) => has(tokens)).map(([name, { label }]) => h("option", { value: name }, t(label)));
  const choice = h("select", { on: { change: (/** @type {Event} */ event) => paint(/** @type {HTMLSelectElement} */ (event.target).value) } }, ...options);
  paint("log_prob");
  return h("div", {}, h("p", { class: "quiet" }, h("label", {}, t("Colour by"), " ", choice), scale), box, line);
}

/**
 * At the end of a long run of one token, such as the places of a picture's squares, show the first and how many there are.
 * @param {number[]} ids
 * @param {HTMLElement[]} spans
 * @param {number} i
 */
function shorten(ids, spans, i) {
  if (ids[i + 1] === ids[i]) return;
  let first = i;
  while (first > 0 && ids[first - 1] === ids[i]) first--;
  if (i - first + 1 < LONG_RUN) return;
  for (const span of spans.slice(first + 1, i + 1)) span.classList.add("again");
  spans[i].after(h("span", { class: "quiet" }, ` × ${i - first + 1}`));
}

/**
 * @param {Tokens} tokens
 * @param {number} i
 */
function describe(tokens, i) {
  const value = tokens.log_probs[i];
  const parts = [value === null ? t("no log-prob") : `${t("log-prob")} ${number(value)}, ${t("probability")} ${number(Math.exp(value))}`];
  const now = tokens.new?.[i] ?? null;
  if (now !== null) parts.push(`${t("learner")} ${number(now)}`);
  for (const [label, values] of /** @type {[string, any][]} */ ([["entropy", tokens.entropies], ["advantage", tokens.advantages], ["policy version", tokens.versions]])) {
    if (values && values[i] !== null) parts.push(`${t(label)} ${number(values[i])}`);
  }
  const others = (tokens.alternatives?.[i] ?? []).map((each) => `${JSON.stringify(each.text)} ${number(Math.exp(each.log_prob ?? -Infinity))}`);
  if (others.length) parts.push(`${t("likeliest")}: ${others.join(", ")}`);
  return `${t("token {0} of {1}, id {2}", i + 1, tokens.total, tokens.ids[i])}: ${parts.join(", ")}`;
}
