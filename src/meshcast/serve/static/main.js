// The page: views, the theme, the link; everything else lies in the modules.

import { call } from "./api.js";
import { begin, give as giveControls } from "./controls.js";
import { notice, settled } from "./dom.js";
import { redraw } from "./sections.js";
import { give as giveSearch, runsList, searchForm, watch } from "./search.js";
import { recall, remember, state } from "./state.js";

let loaded = false; // whether the catalogue is there, which forms are made of

function show(view) {
  settled();
  state.view = view;
  for (const each of ["predict", "search", "runs"]) document.getElementById(`view-${each}`).hidden = each !== view;
  for (const button of document.querySelectorAll(".tabs button")) {
    if (button.dataset.view === view) button.setAttribute("aria-current", "page"); else button.removeAttribute("aria-current");
  }
  if (loaded && view === "search") searchForm();
  if (loaded && view === "runs") runsList();
  remember();
}

const THEMES = ["auto", "light", "dark"];
function theme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("meshcast-theme", name); } catch { /* not kept, then */ }
  document.getElementById("theme").title = `Light or dark: ${name}`;
  redraw();
}

// The address holds what is configured: a jump to the answer must not take its place.
document.getElementById("brief").addEventListener("click", (event) => {
  event.preventDefault();
  document.querySelector(`[data-card="${state.active}"]`)?.scrollIntoView({ block: "start" });
});
document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || "auto";
  theme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
document.getElementById("share").addEventListener("click", async () => {
  remember();
  try { await navigator.clipboard.writeText(location.href); notice("The link is copied: it has everything that is set here."); } catch { notice("The address of this page is the link: it has everything that is set here."); }
});
for (const button of document.querySelectorAll(".tabs button")) button.addEventListener("click", () => show(button.dataset.view));

// What is set here takes the address's place without an event: this one is of somebody who has put in another link.
window.addEventListener("hashchange", () => location.reload());

async function start() {
  let kept = null;
  try { kept = localStorage.getItem("meshcast-theme"); } catch { /* none is kept */ }
  if (THEMES.includes(kept)) theme(kept);
  recall();
  notice("starting …");
  const catalogue = await call("GET", "/api/catalogue", undefined, { heard: (job) => notice(`starting … ${job.seconds.toFixed(0)} s`) });
  notice("");
  giveControls(catalogue);
  giveSearch(catalogue, show);
  loaded = true;
  const running = state.run;
  show(state.view); // as the link says, or as was clicked meanwhile
  if (running && state.view === "search") watch(running);
  await begin();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => notice(error.message, "error"));
