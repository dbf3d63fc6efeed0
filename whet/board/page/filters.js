// @ts-check
import { h } from "./dom.js";
import { t } from "./language.js";

/**
 * A labelled field that goes by its name into the address.
 * @param {string} label
 * @param {string} name
 * @param {URLSearchParams} query
 * @param {Record<string, any>} attributes
 */
export function field(label, name, query, attributes) {
  return h("label", {}, label, h("input", { name, value: query.get(name) || "", ...attributes }));
}

/**
 * @param {string} label
 * @param {string} name
 * @param {string} chosen
 * @param {[string, string][]} options value and text
 */
export function chooser(label, name, chosen, options) {
  const items = options.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("label", {}, label, h("select", { name }, ...items));
}

/**
 * A form whose fields, when changed, are given to `act` by their names.
 * @param {(values: Record<string, string>) => void} act
 * @param {...HTMLElement} fields
 */
export function form(act, ...fields) {
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    const data = new FormData(element);
    act(Object.fromEntries([...data].map(([name, value]) => [name, String(value)])));
  };
  const button = h("button", { type: "submit" }, t("Show"));
  const element = /** @type {HTMLFormElement} */ (h("form", { class: "controls", on: { submit: send, change: send } }, ...fields, button));
  return element;
}

/**
 * Buttons to the page before and after.
 * @param {number} total
 * @param {number} offset
 * @param {number} size
 * @param {string} noun
 * @param {(offset: number) => void} turn
 */
export function pages(total, offset, size, noun, turn) {
  const last = Math.min(total, offset + size);
  const text = total ? t("{0} to {1} of {2} {3}", offset + 1, last, total.toLocaleString("en"), t(noun)) : t("no {0}", t(noun));
  return h(
    "div",
    { class: "pages" },
    h("button", { type: "button", disabled: offset <= 0, on: { click: () => turn(Math.max(0, offset - size)) } }, t("Previous")),
    h("button", { type: "button", disabled: last >= total, on: { click: () => turn(offset + size) } }, t("Next")),
    h("span", { class: "quiet", role: "status" }, text),
  );
}

/**
 * Sentences about files that are damaged.
 * @param {string[]} sentences
 */
export function notices(sentences) {
  return h("div", {}, ...sentences.slice(0, 5).map((each) => h("p", { class: "notice" }, each)));
}
