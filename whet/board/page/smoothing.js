// @ts-check

/**
 * Exponential moving average, corrected for its start; gaps (null) stay gaps.
 * @param {(number|null)[]} values
 * @param {number} weight of what came before, from 0 to below 1
 * @returns {(number|null)[]}
 */
export function smooth(values, weight) {
  let mean = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return mean / total;
  });
}
