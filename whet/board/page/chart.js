// @ts-check
import { visible } from "./visible.js";
import { smooth } from "./smoothing.js";

const PALETTE = ["#3b6ea8", "#c8553d", "#3f8f5f", "#8a5fa8", "#c08a1e", "#2f8f9d", "#a83b6e", "#8b8b8b"];
const SMOOTHED = 5; // points of a curve below which it is drawn as it is
/** @type {Promise<any>|null} */
let loading = null;

/** Load plotly from the board itself, when the first chart is drawn. */
function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "plotly.min.js";
    script.onload = () => resolve(/** @type {any} */ (window).Plotly);
    script.onerror = () => reject(new Error("plotly.min.js cannot be loaded"));
    document.head.append(script);
  });
  return loading;
}

/**
 * plotly reads a few tags in labels; a name must not become one.
 * @param {string} text
 */
const plain = (text) => visible(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/**
 * @param {HTMLElement} element
 * @param {string} title
 * @param {string} axis
 * @param {{label: string, x: number[], y: (number|null)[], low?: (number|null)[], high?: (number|null)[]}[]} lines
 * @param {number} weight
 * @param {boolean} log
 */
export async function drawChart(element, title, axis, lines, weight, log) {
  const Plotly = await plotly();
  const style = getComputedStyle(document.documentElement);
  const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name).trim());
  const traces = lines.flatMap(({ label, x, y, low, high }, i) => {
    const shown = y.map((value, at) => [x[at], value]).filter((point) => point[1] !== null);
    const [xs, ys] = [shown.map((point) => point[0]), shown.map((point) => point[1])];
    const mode = shown.length > 40 ? "lines" : "lines+markers";
    const colour = PALETTE[i % PALETTE.length];
    const base = { x: xs, name: plain(label), mode, type: "scatter", line: { color: colour }, marker: { color: colour, size: 4 } };
    const raw = { ...base, y: ys, opacity: 0.25, showlegend: false, hoverinfo: "skip" };
    const wavers = weight > 0 && shown.length >= SMOOTHED; // a few validations would be drawn towards the first
    if (low && high) return [...band(x, low, high, weight, colour), { ...base, mode: "lines", y: wavers ? smooth(ys, weight) : ys }];
    return wavers ? [raw, { ...base, mode: "lines", y: smooth(ys, weight) }] : [{ ...base, y: ys }];
  });
  const grid = { gridcolor: line, zerolinecolor: line };
  const layout = {
    title: { text: plain(title), font: { size: 14 } },
    margin: { l: 52, r: 12, t: 36, b: lines.length > 1 ? 40 : 50 },
    font: { color: ink, size: 12 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: lines.length > 1,
    legend: { orientation: "h", y: -0.2 },
    xaxis: { ...grid, title: lines.length > 1 ? undefined : { text: axis, standoff: 8 } }, // the legend needs its place
    yaxis: { ...grid, type: log ? "log" : "linear" },
    hovermode: "x unified",
    hoverlabel: { bgcolor: style.getPropertyValue("--raised").trim(), font: { color: ink } },
  };
  await Plotly.react(element, traces, layout, { responsive: true, displaylogo: false, displayModeBar: false });
}

/**
 * The area between the lowest and the highest of several seeds.
 * @param {number[]} x
 * @param {(number|null)[]} low
 * @param {(number|null)[]} high
 * @param {number} weight
 * @param {string} colour
 */
function band(x, low, high, weight, colour) {
  const edge = { x, mode: "lines", type: "scatter", line: { width: 0 }, showlegend: false, hoverinfo: "skip" };
  const shown = (/** @type {(number|null)[]} */ values) => (weight > 0 && values.length >= SMOOTHED ? smooth(values, weight) : values);
  return [{ ...edge, y: shown(low) }, { ...edge, y: shown(high), fill: "tonexty", fillcolor: `${colour}33` }];
}
