// Everything that sections draw, on a view of them.
"use strict";
const drawSections = (Page) => {
  const Plots = reportPlots(Page);
  reportLanes(Page);
  reportTraces(Page);
  reportSearch(Page, Plots);
};
