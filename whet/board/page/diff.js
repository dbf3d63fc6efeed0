// @ts-check
// Words of two texts side by side: what both have in order (longest common subsequence), and what only one has.
const MOST = 4000; // words of a text that are compared; the table grows with their product

/**
 * @param {string} text
 * @returns {string[]} words with the space behind them
 */
export const words = (text) => text.match(/\s*\S+\s*|\s+/g) ?? [];

/**
 * Compare two lists of words.
 * @param {string[]} a
 * @param {string[]} b
 * @returns {{kind: "same"|"left"|"right", text: string}[]}
 */
export function diff(a, b) {
  let begin = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin++;
  let end = 0;
  while (end < a.length - begin && end < b.length - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const middle = between(a.slice(begin, a.length - end), b.slice(begin, b.length - end));
  const parts = [{ kind: "same", text: a.slice(0, begin).join("") }, ...middle, { kind: "same", text: a.slice(a.length - end).join("") }];
  return /** @type {any} */ (joined(parts));
}

/**
 * @param {string[]} a
 * @param {string[]} b
 */
function between(a, b) {
  if (a.length > MOST || b.length > MOST) return [{ kind: "left", text: a.join("") }, { kind: "right", text: b.join("") }];
  const wide = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * wide + j;
      longest[at] = a[i] === b[j] ? longest[at + wide + 1] + 1 : Math.max(longest[at + wide], longest[at + 1]);
    }
  }
  const parts = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    const at = i * wide + j;
    if (a[i] === b[j]) [parts[parts.length], i, j] = [{ kind: "same", text: a[i] }, i + 1, j + 1];
    else if (longest[at + wide] >= longest[at + 1]) parts.push({ kind: "left", text: a[i++] });
    else parts.push({ kind: "right", text: b[j++] });
  }
  while (i < a.length) parts.push({ kind: "left", text: a[i++] });
  while (j < b.length) parts.push({ kind: "right", text: b[j++] });
  return parts;
}

/** @param {{kind: string, text: string}[]} parts */
function joined(parts) {
  /** @type {{kind: string, text: string}[]} */
  const whole = [];
  for (const part of parts) {
    if (!part.text) continue;
    const last = whole.at(-1);
    if (last && last.kind === part.kind) last.text += part.text;
    else whole.push({ ...part });
  }
  return whole;
}
