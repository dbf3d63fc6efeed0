// @ts-check

/**
 * Ask the board; the path of the page holds the token.
 * @param {string} path
 * @param {Record<string, any>} [query] empty values are left out, lists are repeated
 * @returns {Promise<any>}
 */
export async function ask(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") parameters.append(name, String(each));
    }
  }
  const text = parameters.toString();
  return await read(await fetch(`api/${path}${text ? "?" + text : ""}`));
}

/**
 * Ask the board to start something.
 * @param {string} path
 * @param {Record<string, any>} content
 * @returns {Promise<any>}
 */
export async function send(path, content) {
  const headers = { "Content-Type": "application/json" };
  return await read(await fetch(`api/${path}`, { method: "POST", headers, body: JSON.stringify(content) }));
}

/** @param {Response} answer */
async function read(answer) {
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error || `the board answered ${answer.status}`);
  return content;
}
