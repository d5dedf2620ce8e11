// The report's own sections in a card: their markup as the server's templates make it, their styles and scripts, in a shadow root so that the
// page's and theirs do not meet.

import { h } from "./dom.js";

/* global reportView, drawSections */
const sheet = new CSSStyleSheet();
const styled = fetch("report/sections.css").then((answer) => answer.text()).then((text) => sheet.replace(text));
const views = new Set();
let chosen = "breakdown"; // which section stands below the summary, in every card

export class SectionsView {
  constructor() {
    this.host = h("div", { class: "report-sections" });
    this.root = this.host.attachShadow({ mode: "open" });
    this.root.adoptedStyleSheets = [sheet];
    this.answer = null;
    this.view = null;
    this.sized = new ResizeObserver(() => this.view && this.view.redraw());
    this.sized.observe(this.host);
    views.add(this);
  }

  // Sections that have come; those of an earlier answer about the same stay.
  async give(answer) {
    const before = this.answer || { data: {}, html: {} };
    this.answer = { ...answer, data: { ...before.data, ...answer.data }, html: { ...before.html, ...answer.html } };
    await styled;
    if (this.view) this.view.end();
    const { html, titles, data, title, glossary } = this.answer;
    this.names = Object.keys(titles).filter((name) => name in html && name !== "summary"); // in the order of a report
    const markup = document.createElement("template");
    markup.innerHTML = [html.summary, ...this.names.map((name) => html[name])].join("\n"); // of our own templates, which escape what is in it
    const sections = h("div", { class: "sections in-card" }, markup.content);
    const buttons = this.names.map((name) => h("button", { type: "button", "data-section": name, onclick: () => choose(name) }, titles[name]));
    sections.querySelector("#summary").after(h("div", { class: "choice", role: "group", "aria-label": "Sections" }, buttons));
    this.root.replaceChildren(sections, h("div", { id: "tip", role: "tooltip", hidden: true }));
    this.show();
    this.view = reportView(this.root, { title, glossary, sections: data, traces: [] });
    drawSections(this.view);
  }

  show() {
    const shown = this.names.includes(chosen) ? chosen : this.names[0];
    for (const button of this.root.querySelectorAll("[data-section]")) button.setAttribute("aria-pressed", String(button.dataset.section === shown));
    for (const name of this.names) this.root.getElementById(name).hidden = name !== shown;
  }

  redraw() { if (this.view) { this.show(); this.view.redraw(); } }

  end() {
    this.sized.disconnect();
    if (this.view) this.view.end();
    views.delete(this);
  }
}

export function redraw() { for (const each of views) each.redraw(); }

function choose(name) { chosen = name; redraw(); }
