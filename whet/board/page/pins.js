// @ts-check
import { h } from "./dom.js";
import { t } from "./language.js";

// The layout of curves that is shown where the address names none: kept by the browser, for this machine's boards.
const KEY = "whet-board-curves";

/** @returns {URLSearchParams|null} */
export function pinned() {
  try {
    const text = localStorage.getItem(KEY);
    return text ? new URLSearchParams(text) : null;
  } catch {
    return null; // storage can be forbidden
  }
}

/** @param {Record<string, any>|null} layout metrics, x, smooth, log and bands; null forgets */
export function pin(layout) {
  try {
    if (layout) localStorage.setItem(KEY, String(new URLSearchParams(layout)));
    else localStorage.removeItem(KEY);
    return true;
  } catch {
    return false;
  }
}

/**
 * A button that keeps this layout for the next time, or forgets the one that is kept.
 * @param {any} state
 */
export function pinButton(state) {
  const button = h("button", { type: "button" }, t(pinned() ? "Forget the pin" : "Pin this layout"));
  button.addEventListener("click", () => {
    const { metrics, x, smooth, log, bands } = state;
    pin(pinned() ? null : { metrics: metrics.join(","), x, smooth, log: log ? "1" : "", bands: bands ? "1" : "" });
    button.textContent = t(pinned() ? "Forget the pin" : "Pin this layout");
  });
  return button;
}
