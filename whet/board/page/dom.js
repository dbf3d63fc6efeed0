// @ts-check
// Elements from text: nothing here, or anywhere in the board, parses markup.
import { visible } from "./visible.js";

/**
 * Build an element. Children that are texts become text nodes with control characters made visible.
 * @param {string} tag
 * @param {Record<string, any>} [attributes] `on` holds listeners by event; null and false leave an attribute out
 * @param {...(Node|string|number|null|undefined)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) {
    if (child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
  return element;
}

/**
 * Replace what is in an element.
 * @param {Element} element
 * @param {...(Node|null)} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null).map((child) => /** @type {Node} */ (child)));
}

/**
 * Write a number so that four digits, or as many as are asked for, can be told apart.
 * @param {number|null|undefined} value
 * @param {number} [digits]
 * @returns {string}
 */
export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(digits)));
}
