// The embedded trace: downloaded, or handed to ui.perfetto.dev as its documentation describes: PING until it answers PONG, then the trace.
"use strict";
const reportTraces = (Page) => {
  const Report = Page.report;
  const ORIGIN = "https://ui.perfetto.dev";
  const PATIENCE_MS = 12000;
  const bytes = (trace) => Uint8Array.from(atob(trace.data), (letter) => letter.charCodeAt(0));
  const download = (trace) => {
    const link = Page.element("a");
    link.href = URL.createObjectURL(new Blob([bytes(trace)], { type: "application/gzip" }));
    link.download = trace.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const open = (trace, said) => {
    const instead = "Download the file and open it at ui.perfetto.dev.";
    if (!navigator.onLine) { said.textContent = `The network is off. ${instead}`; return; }
    const target = window.open(ORIGIN);
    if (!target) { said.textContent = `The browser blocked the new window. ${instead}`; return; }
    said.textContent = "Waiting for Perfetto …";
    const started = Date.now();
    const asking = setInterval(() => {
      if (Date.now() - started > PATIENCE_MS || target.closed) {
        done();
        said.textContent = `Perfetto does not answer: the network is off, or it takes no trace from a page of this place. ${instead}`;
        return;
      }
      target.postMessage("PING", ORIGIN);
    }, 150);
    const answered = (event) => {
      if (event.source !== target || event.data !== "PONG") return;
      done();
      target.postMessage({ perfetto: { buffer: bytes(trace).buffer, title: Report.title, fileName: trace.file } }, ORIGIN);
      said.textContent = "Opened in Perfetto.";
    };
    const done = () => { clearInterval(asking); removeEventListener("message", answered); };
    addEventListener("message", answered);
  };
  Page.listen(Page.root, "click", (event) => {
    const opened = event.target.closest("[data-perfetto]");
    if (opened) open(Report.traces[Number(opened.dataset.perfetto)], opened.parentElement.querySelector("[data-said]"));
    const taken = event.target.closest("[data-download]");
    if (taken) download(Report.traces[Number(taken.dataset.download)]);
  });
};
