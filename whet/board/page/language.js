// @ts-check
// Labels in English or Chinese. Only labels of the page are looked up here, never text of a run.
import { CHINESE } from "./chinese.js";

const KEY = "whet-board-language";
/** @type {string} */
let language = kept() || (navigator.language.startsWith("zh") ? "zh" : "en");

function kept() {
  try {
    return localStorage.getItem(KEY) || "";
  } catch {
    return ""; // storage can be forbidden
  }
}

/** @returns {string} "en" or "zh" */
export const current = () => language;

/** @param {string} name "en" or "zh" */
export function choose(name) {
  language = name;
  document.documentElement.lang = name;
  try {
    localStorage.setItem(KEY, name);
  } catch {
    return;
  }
}

/**
 * Return a label in the chosen language; `{0}`, `{1}` stand for values.
 * @param {string} text in English
 * @param {...(string|number)} values
 * @returns {string}
 */
export function t(text, ...values) {
  const label = language === "zh" ? (CHINESE[text] ?? text) : text;
  return label.replace(/\{(\d)\}/g, (_, at) => String(values[Number(at)] ?? ""));
}
