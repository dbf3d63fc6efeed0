// @ts-check
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
