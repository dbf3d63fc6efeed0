// @ts-check
// Characters that would hide, move or reorder text are shown by name. JOINERS are needed by ordinary text.
const JOINERS = "\u200c\u200d";
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\p{Cf}\p{Cs}]/gu;

/**
 * Return text in which every character can be seen; line feeds and tabs stay.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(HIDDEN, (char) => {
    const code = /** @type {number} */ (char.codePointAt(0));
    if (JOINERS.includes(char)) return char;
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}
