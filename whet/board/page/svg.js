// @ts-check
import { visible } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * Build an element of a picture; texts become text nodes.
 * @param {string} tag
 * @param {Record<string, any>} [attributes] `on` holds listeners by event
 * @param {...(Node|string|null)} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) {
    if (child !== null) element.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return element;
}
