// @ts-check
// The view and its settings are in the address after #, so that a link or a bookmark opens the same again.

/** @returns {{view: string, query: URLSearchParams}} */
export function place() {
  const [path, text] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || "runs", query: new URLSearchParams(text || "") };
}

/**
 * Return the address of a view.
 * @param {string} view
 * @param {Record<string, any>} query empty values are left out, lists are joined by commas
 * @returns {string}
 */
export function address(view, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    const text = Array.isArray(value) ? value.join(",") : value;
    if (text !== null && text !== undefined && text !== "" && text !== false) parameters.set(name, String(text));
  }
  return `#/${view}?${parameters}`;
}

/**
 * Go to a view.
 * @param {string} view
 * @param {Record<string, any>} query
 */
export function go(view, query) {
  location.hash = address(view, query);
}
