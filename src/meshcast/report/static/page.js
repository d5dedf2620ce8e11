// A view of a report: its tooltips, what it sorts and which pass it shows, in a document of its own or in a part of another page (a shadow
// root). Texts go into the page as text, never as HTML.
"use strict";
const reportView = (root, report) => {
  const ended = new AbortController();  // of a view that is taken from the page
  const listen = (target, name, act, more = {}) => target.addEventListener(name, act, { ...more, signal: ended.signal });
  const base = root.host || document.documentElement;
  const tip = root.getElementById("tip");
  const drawn = [];  // what draws itself again when colours or sizes change
  const undone = [];  // what is let go of at the end

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  // A long plan, which may go on in the next line behind its commas.
  const broken = (text) => text.split(/(?<=,)/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]));
  const colour = (name) => getComputedStyle(base).getPropertyValue(`--${name}`).trim();

  // Lines of a tooltip: [label, value] pairs below a title, and what the number means.
  const lines = (title, pairs, meaning) => {
    const box = element("div");
    if (title) box.append(element("b", title));
    for (const [label, value] of pairs || []) {
      if (value === "" || value === null || value === undefined) continue;
      const row = element("div", undefined, "row");
      row.append(element("span", label), element("span", value));
      box.append(row);
    }
    if (meaning) box.append(element("div", meaning, "meaning"));
    return box;
  };
  const show = (content, x, y) => {
    tip.replaceChildren(content);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18}px`;
  };
  const hide = () => { tip.hidden = true; };

  const meaning = (target) => {
    const term = target.dataset.term;
    const title = target.dataset.label;
    const value = target.dataset.value;
    const unit = target.dataset.unit;
    const pairs = [];
    if (title && value !== undefined) pairs.push([title, Units.shown(Number(value), unit)]);
    else if (value !== undefined && target.matches(".q, td")) pairs.push(["exactly", `${value}${unit && unit !== "share" && unit !== "count" ? ` ${unit}` : ""}`]);
    return lines("", pairs, report.glossary[term] || "");
  };
  const hovered = (event) => {
    const target = event.target.closest ? event.target.closest("[data-term]") : null;
    if (!target) { if (!event.target.closest || !event.target.closest(".lanes, .plot")) hide(); return; }
    const box = target.getBoundingClientRect();
    show(meaning(target), event.type === "focusin" ? box.left : event.clientX, event.type === "focusin" ? box.bottom - 12 : event.clientY);
  };
  listen(root, "pointerover", hovered);
  listen(root, "focusin", hovered);
  listen(root, "focusout", hide);
  if (root.host) listen(root.host, "pointerleave", hide);
  listen(document, "scroll", hide, { passive: true });
  listen(document, "keydown", (event) => { if (event.key === "Escape") hide(); });

  // Colours: the reader's system decides until the switch does.
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  };
  const redraw = () => { for (const draw of drawn) draw(); };
  // What a picture is drawn for: its place, or paper, which no element has the width of before it is printed.
  const PAPER = 660;  // CSS pixels between the margins of A4, within a card; Letter has some more
  let paper = false;
  const printed = () => paper;
  const onPaper = (wanted) => { paper = wanted; redraw(); };
  const width = (host) => (paper && host.clientWidth ? PAPER : host.clientWidth);
  const dots = () => (paper ? 3 : devicePixelRatio || 1);  // of a canvas, for each CSS pixel
  // Letters on a colour (#rrggbb): white or black, whichever is told from it better (relative luminance as WCAG 2 has it).
  const letters = (shade) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(shade.slice(at, at + 2), 16) / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? "#10141b" : "#ffffff";
  };
  listen(matchMedia("(prefers-color-scheme: dark)"), "change", redraw);

  // Lengths of bars, which templates leave as numbers: a page may not take styles that stand in its markup.
  for (const each of root.querySelectorAll("[data-grow]")) each.style.flexGrow = each.dataset.grow;
  for (const each of root.querySelectorAll("[data-part]")) each.style.setProperty("--part", each.dataset.part);

  // Which pass of several is shown, everywhere at once.
  listen(root, "click", (event) => {
    const chosen = event.target.closest("[data-choose]");
    if (chosen) {
      const name = chosen.dataset.choose;
      for (const each of root.querySelectorAll("[data-choose]")) each.setAttribute("aria-pressed", String(each.dataset.choose === name));
      for (const each of root.querySelectorAll("[data-scene]")) each.hidden = each.dataset.scene !== name;
      redraw();
    }
    const copied = event.target.closest("[data-copy]");
    if (copied) {
      const text = root.getElementById(copied.dataset.copy).textContent;
      const done = (said) => { copied.textContent = said; setTimeout(() => { copied.textContent = "Copy"; }, 1500); };
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => done("Copied"), () => done("Select it by hand"));
      else done("Select it by hand");
    }
  });

  // Tables that can be sorted: by numbers where a cell has one, else by texts.
  for (const table of root.querySelectorAll("table.sortable")) {
    if (!table.tHead.rows.length) continue;  // filled by what filters it as well
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      const button = element("button", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => { const cell = row.cells[place]; return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.classList.contains("num") ? -Infinity : cell.textContent; };
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
          return down ? -order : order;
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  let waiting = 0;
  listen(window, "resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); });
  const font = () => getComputedStyle(root.host || document.body).fontFamily;
  const draws = (draw, undo) => { drawn.push(draw); if (undo) undone.push(undo); draw(); };
  const end = () => { ended.abort(); for (const undo of undone) undo(); };
  return { root, report, element, broken, width, dots, letters, printed, onPaper, colour, font, lines, show, hide, isDark, redraw, listen, draws, end };
};
