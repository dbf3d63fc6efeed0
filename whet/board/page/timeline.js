// @ts-check
import { h, number as written } from "./dom.js";
import { t } from "./language.js";
import { s } from "./svg.js";

const [WIDTH, LEFT, ROW] = [1000, 120, 22];
const MOST_ROWS = 64; // groups that are drawn, the rest is counted
const number = (/** @type {number|undefined} */ value) => written(value, 3);

/**
 * Stages of a step as bars over its seconds, and below them its groups: sampled, then scored, then waiting for the update.
 * @param {any} timeline
 * @returns {HTMLElement}
 */
export function timelineChart(timeline) {
  const { stages, groups, seconds } = timeline;
  const names = [...new Set(stages.map((/** @type {any[]} */ each) => each[0]))];
  const first = Math.min(0, ...groups.map((/** @type {number[]} */ each) => each[1]));
  const last = Math.max(seconds || 0, 0.001, ...stages.map((/** @type {any[]} */ each) => each[2]));
  const x = (/** @type {number} */ at) => LEFT + ((at - first) / (last - first)) * (WIDTH - LEFT - 10);
  const bar = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ y, /** @type {number} */ high, /** @type {string} */ kind, /** @type {string} */ title) =>
    s("rect", { x: x(from), y, width: Math.max(1, x(to) - x(from)), height: high, class: kind, rx: 2 }, s("title", {}, title));
  const lanes = names.flatMap((name, i) => {
    const label = s("text", { x: LEFT - 8, y: 14 + i * ROW, "text-anchor": "end" }, name);
    const bars = stages
      .filter((/** @type {any[]} */ each) => each[0] === name)
      .map((/** @type {any[]} */ [, from, to]) => bar(from, to, 2 + i * ROW, ROW - 6, `stage stage-${i % 6}`, `${name}: ${number(to - from)} s`));
    return [label, ...bars];
  });
  const shown = [...groups].sort((a, b) => b[3] - a[3]).slice(0, MOST_ROWS);
  const top = names.length * ROW + 10;
  const rows = shown.flatMap(([group, begun, sampled, scored], i) => [
    bar(begun, sampled, top + i * 6, 4, "sampled", `${t("group {0}", group)}: ${t("sampled in {0} s", number(sampled - begun))}`),
    bar(sampled, scored, top + i * 6, 4, "scored", `${t("group {0}", group)}: ${t("scored after {0} s", number(scored - sampled))}`),
  ]);
  const label = shown.length ? s("text", { x: LEFT - 8, y: top + 8, "text-anchor": "end" }, t("groups")) : null;
  const height = top + shown.length * 6 + 24;
  const apart = tickDistance(last - first);
  const ticks = Array.from({ length: Math.floor(last / apart) - Math.ceil(first / apart) + 1 }, (_, i) => (Math.ceil(first / apart) + i) * apart).flatMap((at) => [
    s("line", { x1: x(at), x2: x(at), y1: 0, y2: height - 18, class: "tick" }),
    s("text", { x: x(at), y: height - 4, "text-anchor": x(at) > WIDTH - 30 ? "end" : "middle" }, `${number(at)} s`),
  ]);
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "timeline", role: "img", "aria-label": t("timeline of the step") }, ...ticks, ...lanes, label, ...rows);
  return h("div", { class: "wide", tabindex: 0 }, picture, h("p", { class: "quiet" }, ...sentences(timeline)));
}

/**
 * A round distance of ticks, for three to eight of them.
 * @param {number} range
 */
function tickDistance(range) {
  const power = 10 ** Math.floor(Math.log10(range / 3));
  return (range / power >= 15 ? 5 : range / power >= 6 ? 2 : 1) * power;
}

/**
 * What waited for what, in words.
 * @param {any} timeline
 * @returns {string[]}
 */
function sentences({ stages, groups, seconds, all_groups }) {
  const total = stages.reduce((/** @type {number} */ sum, /** @type {any[]} */ each) => sum + each[2] - each[1], 0);
  const lines = [t("{0} s in all, {1} s of them outside of any stage.", number(seconds), number(Math.max(0, seconds - total)))];
  if (groups.length) {
    const sampled = groups.map((/** @type {number[]} */ each) => each[2]).sort((/** @type {number} */ a, /** @type {number} */ b) => a - b);
    const half = sampled[Math.floor(sampled.length / 2)];
    lines.push(" ", t("Half of the groups were sampled by {0} s, the last at {1} s: {2} s of waiting for the slowest.", number(half), number(sampled.at(-1)), number(sampled.at(-1) - half)));
    const scoring = Math.max(...groups.map((/** @type {number[]} */ each) => each[3])) - sampled.at(-1);
    lines.push(" ", t("After the last sample, scores took {0} s more.", number(Math.max(0, scoring))));
    if (all_groups > groups.length) lines.push(" ", t("{0} of {1} groups are shown.", groups.length, all_groups));
  }
  return lines;
}
