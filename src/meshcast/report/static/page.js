// The page itself: data, theme, tooltips, sorting, which pass is shown, printing. Texts go into the page as text, never as HTML.
"use strict";
const Report = JSON.parse(document.getElementById("report-data").textContent);
const Page = (() => {
  const tip = document.getElementById("tip");
  const drawn = [];  // what draws itself again when colours or sizes change

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

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
    return lines("", pairs, Report.glossary[term] || "");
  };
  const hovered = (event) => {
    const target = event.target.closest ? event.target.closest("[data-term]") : null;
    if (!target) { if (!event.target.closest || !event.target.closest(".lanes, .plot")) hide(); return; }
    const box = target.getBoundingClientRect();
    show(meaning(target), event.type === "focusin" ? box.left : event.clientX, event.type === "focusin" ? box.bottom - 12 : event.clientY);
  };
  document.addEventListener("pointerover", hovered);
  document.addEventListener("focusin", hovered);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Colours: the reader's system decides until the switch does.
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const redraw = () => { for (const draw of drawn) draw(); };
  document.getElementById("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.getElementById("print").addEventListener("click", () => print());
  let before = null;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme || "";
    document.documentElement.dataset.theme = "light";
    for (const each of document.querySelectorAll("details:not([open])")) { each.open = true; each.dataset.printed = ""; }
    redraw();
  });
  addEventListener("afterprint", () => {
    if (before) document.documentElement.dataset.theme = before; else delete document.documentElement.dataset.theme;
    for (const each of document.querySelectorAll("details[data-printed]")) { each.open = false; delete each.dataset.printed; }
    redraw();
  });

  // Which pass of several is shown, everywhere at once.
  document.addEventListener("click", (event) => {
    const chosen = event.target.closest("[data-choose]");
    if (chosen) {
      const name = chosen.dataset.choose;
      for (const each of document.querySelectorAll("[data-choose]")) each.setAttribute("aria-pressed", String(each.dataset.choose === name));
      for (const each of document.querySelectorAll("[data-scene]")) each.hidden = each.dataset.scene !== name;
      redraw();
    }
    const copied = event.target.closest("[data-copy]");
    if (copied) {
      const text = document.getElementById(copied.dataset.copy).textContent;
      const done = (said) => { copied.textContent = said; setTimeout(() => { copied.textContent = "Copy"; }, 1500); };
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => done("Copied"), () => done("Select it by hand"));
      else done("Select it by hand");
    }
  });

  // Tables that can be sorted: by numbers where a cell has one, else by texts.
  for (const table of document.querySelectorAll("table.sortable")) {
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

  // The section that is being read, in the list of sections.
  const links = new Map([...document.querySelectorAll(".side a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      const link = links.get(entry.target.id);
      if (!link) continue;
      link.setAttribute("aria-current", "true");
      const list = link.closest(".side");
      if (list.scrollWidth > list.clientWidth) list.scrollLeft = link.offsetLeft - 40;
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const section of document.querySelectorAll("main > .section")) seen.observe(section);

  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); });
  return { element, colour, lines, show, hide, isDark, redraw, draws: (draw) => { drawn.push(draw); draw(); } };
})();
