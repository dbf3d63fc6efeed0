// @ts-check
import { h, number } from "./dom.js";

/**
 * Tokens coloured by how unlikely each was, in segments by who wrote them. Pointer, or arrow keys, show numbers.
 * @param {{ids: number[], by_model: boolean[], log_probs: (number|null)[], texts: string[]|null, total: number}} tokens
 * @returns {HTMLElement}
 */
export function tokenBox(tokens) {
  const line = h("p", { class: "quiet", role: "status" }, "Point at a token, or use the arrow keys in the box.");
  const box = h("div", { class: "tokens text", tabindex: 0, role: "group", "aria-label": "tokens of the response" });
  /** @type {HTMLElement[]} */
  const spans = [];
  const several = tokens.by_model.some((own) => !own);
  tokens.ids.forEach((id, i) => {
    if (several && (i === 0 || tokens.by_model[i] !== tokens.by_model[i - 1])) {
      box.append(h("span", { class: "segment" }, tokens.by_model[i] ? "written by the policy" : "written by a tool or the environment"));
    }
    spans.push(token(id, i));
    box.append(spans[i]);
  });

  let chosen = -1;
  const choose = (/** @type {number} */ i) => {
    spans[chosen]?.classList.remove("chosen");
    chosen = i;
    spans[i].classList.add("chosen");
    const value = tokens.log_probs[i];
    const chance = value === null ? "no log-prob" : `log-prob ${number(value)}, probability ${number(Math.exp(value))}`;
    line.textContent = `token ${i + 1} of ${tokens.total}, id ${tokens.ids[i]}: ${chance}`;
  };
  box.addEventListener("pointerover", (event) => {
    const place = /** @type {HTMLElement} */ (event.target).dataset.i;
    if (place !== undefined) choose(Number(place));
  });
  box.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move === undefined || !spans.length) return;
    event.preventDefault();
    choose(Math.min(spans.length - 1, Math.max(0, chosen + move)));
    spans[chosen].scrollIntoView({ block: "nearest" });
  });

  /**
   * @param {number} id
   * @param {number} i
   */
  function token(id, i) {
    const span = h("span", { class: tokens.by_model[i] ? "token" : "token foreign", "data-i": i }, tokens.texts ? tokens.texts[i] : `${id} `);
    const value = tokens.log_probs[i];
    if (value !== null) span.style.setProperty("--p", String(1 - Math.exp(Math.min(0, value))));
    return span;
  }

  const cut = tokens.total > tokens.ids.length ? `, the first ${tokens.ids.length} are shown` : "";
  const scale = h("p", { class: "quiet" }, "likely ", h("span", { class: "scale" }), ` unlikely; ${tokens.total} tokens${cut}`);
  return h("div", {}, scale, box, line);
}
