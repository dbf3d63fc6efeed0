// @ts-check
// Runs that differ only in their seed, as one line with a band: the mean, the lowest and the highest at each step.

// What counts seeds at the end of a name: seed1, seed=1, s1, /1, -1; but not the exponent of 3e-4.
const SEED = /[-_/., ]*(?:seed[-_=]?\d+|(?<![a-z])s\d+|(?<=\/)\d+|(?<![\de])[-_]\d+)$/i;

/**
 * A name without its seed: `grpo-seed1`, `grpo_s2` and `grpo/3` are all of `grpo`.
 * @param {string} name
 */
export const family = (name) => name.replace(SEED, "") || name;

/**
 * Join the lines of each family of several runs; a line alone stays as it is.
 * @param {{label: string, x: number[], y: (number|null)[]}[]} lines
 * @returns {{label: string, x: number[], y: (number|null)[], low?: (number|null)[], high?: (number|null)[]}[]}
 */
export function banded(lines) {
  /** @type {Map<string, typeof lines>} */
  const families = new Map();
  for (const line of lines) families.set(family(line.label), [...(families.get(family(line.label)) ?? []), line]);
  return [...families].map(([name, members]) => (members.length > 1 ? together(name, members) : members[0]));
}

/**
 * @param {string} name
 * @param {{label: string, x: number[], y: (number|null)[]}[]} members
 */
function together(name, members) {
  /** @type {Map<number, number[]>} */
  const values = new Map();
  for (const { x, y } of members) {
    x.forEach((at, i) => {
      const value = y[i];
      if (value !== null && value !== undefined) values.set(at, [...(values.get(at) ?? []), value]);
    });
  }
  const x = [...values.keys()].sort((a, b) => a - b);
  const of = (/** @type {(found: number[]) => number} */ act) => x.map((at) => act(/** @type {number[]} */ (values.get(at))));
  return {
    label: `${name} (${members.length})`,
    x,
    y: of((found) => found.reduce((sum, value) => sum + value, 0) / found.length),
    low: of((found) => Math.min(...found)),
    high: of((found) => Math.max(...found)),
  };
}
