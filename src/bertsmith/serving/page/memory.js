/** What is remembered: language and colours in the browser, texts and a token until the window is closed. */

const own = new Map();  // where a browser keeps nothing, the page itself remembers

/**
 * Return a store: "localStorage" or "sessionStorage".
 * @returns {{get: function(string): string|null, set: function(string, string)}}
 */
const store = (name) => ({
  get: (key) => {
    try {
      return window[name].getItem(key) ?? own.get(key) ?? null;
    } catch {
      return own.get(key) ?? null;
    }
  },
  set: (key, value) => {
    own.set(key, value);
    try {
      window[name].setItem(key, value);
    } catch { /* it is blocked or full */ }
  },
});

export const inBrowser = store("localStorage");
export const inWindow = store("sessionStorage");
