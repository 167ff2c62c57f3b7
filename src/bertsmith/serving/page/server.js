/** Questions to the server that this page came from. */

import { inWindow } from "./memory.js";

const TOKEN = "bertsmith-token";

/** What the server refused, with its reason in one line. */
export class Refused extends Error {
  /**
   * @param {number} status of HTTP; 0: there was no answer.
   * @param {string} code the server's name for the reason.
   * @param {string} message the reason.
   */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Remember the token that the server asks for, until the window is closed. */
export function useToken(token) {
  inWindow.set(TOKEN, token);
}

/** Return whether a token is known. */
export const hasToken = () => inWindow.get(TOKEN) !== null;

const wait = (seconds, signal) => new Promise((done, stop) => {
  const timer = setTimeout(done, 1000 * seconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); stop(signal.reason); });
});

/**
 * Ask once; when the server is busy, come again when it says, three times at most.
 * @param {string} path without a slash before it, so that the page works behind a proxy's prefix.
 * @param {object|null} body what is asked; null: GET.
 * @param {AbortSignal} signal drops the question.
 * @returns {Promise<{answer: object, seconds: number, path: string, body: object}>}
 */
export async function ask(path, body, signal) {
  const headers = body === null ? {} : { "Content-Type": "application/json" };
  const token = inWindow.get(TOKEN);
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  const options = { headers, signal, method: body === null ? "GET" : "POST" };
  if (body !== null) options.body = JSON.stringify(body);
  for (let tries = 1; ; tries += 1) {
    const start = performance.now();
    const response = await reached(path, options);
    if (response.status === 429 && tries < 4) {
      await wait(Math.min(Number(response.headers.get("Retry-After")) || 1, 10), signal);
      continue;
    }
    const answer = await response.json().catch(() => null);
    if (!response.ok || answer === null) throw refusal(response, answer);
    return { answer, seconds: (performance.now() - start) / 1000, path, body };
  }
}

async function reached(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", error.message);
  }
}

function refusal(response, answer) {
  const error = answer?.error ?? {};
  return new Refused(response.status, error.code ?? "", error.message ?? `HTTP ${response.status}`);
}

/** Return the command that asks the same from a shell. */
export function asCurl({ path, body }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [`curl -s ${quoted(new URL(path, document.baseURI).href)}`];
  if (hasToken()) lines.push('-H "Authorization: Bearer $TOKEN"');
  lines.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

/**
 * Return a function that asks when what is asked about has changed: not before typing pauses, never two at once,
 * and never showing an answer to an older question.
 * @param {function(AbortSignal): Promise} question asks; null: there is nothing to ask.
 * @param {function} show is given the answer, or null.
 * @param {function(Error)} fail is given what went wrong.
 * @param {function} begin is called when a question goes out.
 */
export function asking(question, show, fail, begin) {
  let timer, running;
  return (pause = 250) => {
    clearTimeout(timer);
    running?.abort();
    timer = setTimeout(async () => {
      const mine = running = new AbortController();
      try {
        const asked = question(mine.signal);
        if (asked !== null) begin();
        const answer = await asked;
        if (!mine.signal.aborted) show(answer);
      } catch (error) {
        if (!mine.signal.aborted) fail(error);
      }
    }, pause);
  };
}
