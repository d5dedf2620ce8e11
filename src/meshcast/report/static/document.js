// The document of a report: its data, the switch between light and dark, paper, and the list of its sections.
"use strict";
const Report = JSON.parse(document.getElementById("report-data").textContent);
const Page = reportView(document, Report);
(() => {
  // Colours: the reader's system decides until the switch does.
  const theme = (name) => { if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme; Page.redraw(); };
  document.getElementById("theme").addEventListener("click", () => theme(Page.isDark() ? "light" : "dark"));

  document.getElementById("print").addEventListener("click", () => print());
  let before = "";
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme || "";
    for (const each of document.querySelectorAll("details:not([open])")) { each.open = true; each.dataset.printed = ""; }
    theme("light");
    Page.onPaper(true);
  });
  addEventListener("afterprint", () => {
    for (const each of document.querySelectorAll("details[data-printed]")) { each.open = false; delete each.dataset.printed; }
    theme(before);
    Page.onPaper(false);
  });

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
})();
drawSections(Page);
