// Elements from data: texts are texts, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
}

let timer = 0;
export function notice(text, kind = "info") {
  const place = document.getElementById("notice");
  place.textContent = text;
  place.dataset.kind = kind;
  place.hidden = !text;
  clearTimeout(timer);
  if (text && kind === "info") timer = setTimeout(() => { place.hidden = true; }, 4000);
}

// What went wrong is over: something else was done, and it went well.
export function settled() { if (document.getElementById("notice").dataset.kind === "error") notice(""); }

// The last of several calls, once no other has come for a while; `now` makes one that waits at once.
export function debounce(wait, call) {
  let pending = 0, waiting = null;
  const now = () => { clearTimeout(pending); const due = waiting; waiting = null; if (due) due(); };
  const later = (...given) => { clearTimeout(pending); waiting = () => call(...given); pending = setTimeout(now, wait); };
  return Object.assign(later, { now });
}
