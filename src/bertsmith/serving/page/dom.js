/** Elements of the page. Texts become text nodes, never markup; styles are set as properties, as the policy asks. */

/**
 * Return an element.
 * @param {string} name its tag, with classes: "p.soft".
 * @param {object} properties attributes; a function is a listener ("onclick"); null and false leave one out.
 * @param {...(Node|string|number|null)} children what is in it; null is nothing.
 */
export function make(name, properties = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

/** Put other children into an element. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null));
}

/** Return the button that an arrow or Home or End leads to: the next one, or the nearest in the line above or below. */
function reached(key, all, here) {
  const sides = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: all.length - 1 };
  if (key in sides) return all[sides[key]];
  const from = all[here].getBoundingClientRect(), middle = from.left + from.width / 2;
  const distance = (box) => (key === "ArrowDown" ? box.top - from.bottom : from.top - box.bottom);
  const boxes = all.map((stop) => [stop, stop.getBoundingClientRect()]).filter(([, box]) => distance(box) > -2);
  const line = Math.min(...boxes.map(([, box]) => distance(box)));
  const aside = (box) => Math.abs(box.left + box.width / 2 - middle);
  return boxes.filter(([, box]) => distance(box) < line + from.height / 2).sort((a, b) => aside(a[1]) - aside(b[1]))[0]?.[0];
}

const KEYS = new Set(["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End"]);

const stopsIn = (group) => [...group.querySelectorAll("button:not([disabled])")];

/** Make a group's buttons one stop of the tab key: the chosen button, else the first. To be called when they are new. */
export function oneStop(group, chosen = group.querySelector("[aria-pressed=true], [aria-selected=true]")) {
  const stops = stopsIn(group), kept = stops.includes(chosen) ? chosen : stops[0];
  for (const stop of stops) stop.tabIndex = stop === kept ? 0 : -1;
}

/**
 * Let the arrows move in a group of buttons. To be called once a group.
 * @param {Element} group holds the buttons, now or later.
 * @param {function(Element)} arrived is told where an arrow led.
 */
export function arrows(group, arrived = () => {}) {
  oneStop(group);
  group.addEventListener("focusin", (event) => {
    const stop = event.target.closest("button");
    if (stop !== null) oneStop(group, stop);
  });
  group.addEventListener("keydown", (event) => {
    const all = stopsIn(group), here = all.indexOf(document.activeElement);
    if (here < 0 || !KEYS.has(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const stop = reached(event.key, all, here);
    stop?.focus();
    if (stop !== undefined) arrived(stop);
  });
}

/** Put text on the clipboard; say whether that was possible. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;  // only pages from this machine or over HTTPS may
  }
}
