"""The other side of handing a trace to Perfetto: what ui.perfetto.dev does with messages, as its documentation describes it.

https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui: it answers PING with PONG once it listens, and takes a trace
only from the window that has opened it. Its title says what it has got.
"""

from __future__ import annotations

PERFETTO = """<script>addEventListener("message", (event) => {
  if (event.source !== window.opener) return;
  if (event.data === "PING") event.source.postMessage("PONG", "*");
  else document.title = event.data.perfetto.fileName + " " + event.data.perfetto.buffer.byteLength;
})</script>"""
