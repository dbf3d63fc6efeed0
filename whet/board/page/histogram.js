// @ts-check
import { h, number } from "./dom.js";
import { t } from "./language.js";
import { address } from "./place.js";

/**
 * A histogram whose bars are links to the samples of their bin.
 * @param {string} name reward, length or advantage
 * @param {{low: number, high: number, count: number}[]} bins
 * @param {Record<string, any>} query of the list of samples
 * @returns {HTMLElement}
 */
export function histogram(name, bins, query) {
  const most = Math.max(...bins.map((bin) => bin.count));
  const total = bins.reduce((sum, bin) => sum + bin.count, 0);
  const bars = bins.map((bin) => {
    const [low, high] = [number(bin.low, 3), number(bin.high, 3)];
    const range = low === high ? low : `${low} … ${high}`;
    const label = `${t(name)} ${range}: ${t("{0} samples", bin.count)}`;
    const style = `--share: ${bin.count / most}`;
    const filled = h("span", { class: "fill", style });
    const count = h("span", { class: "count" }, bin.count);
    const where = name === "advantage" ? null : address("samples", { ...query, [`min_${name}`]: bin.low, [`max_${name}`]: bin.high });
    const inside = [h("span", { class: "range" }, range), h("span", { class: "track" }, filled), count];
    return where ? h("a", { class: "bin", href: where, "aria-label": label, title: label }, ...inside) : h("div", { class: "bin", title: label }, ...inside);
  });
  return h("section", { class: "histogram" }, h("h2", {}, `${t(name)} (${t("{0} samples", total)})`), ...bars);
}
