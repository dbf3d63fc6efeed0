// @ts-check
const SVG = "http://www.w3.org/2000/svg";

/**
 * Draw points (x, y) as a small line.
 * @param {number[][]} points
 * @param {string} label
 * @returns {SVGElement}
 */
export function sparkline(points, label) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("class", "spark");
  picture.setAttribute("viewBox", "0 0 120 28");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", label);
  const xs = points.map((point) => point[0]);
  const ys = points.map((point) => point[1]);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const line = document.createElementNS(SVG, "polyline");
  const at = points.map(([x, y]) => {
    const across = right > left ? (x - left) / (right - left) : 0.5;
    const up = high > low ? (y - low) / (high - low) : 0.5;
    return `${(2 + 116 * across).toFixed(1)},${(26 - 24 * up).toFixed(1)}`;
  });
  line.setAttribute("points", at.join(" "));
  picture.append(line);
  return picture;
}
