// A search's points: the front of two measures, parallel coordinates that filter, and a table that follows.
"use strict";
const reportSearch = (Page, Plots) => {
  const Report = Page.report;
  const data = Report.sections.exploration && Report.sections.exploration.points;
  if (!data) return;
  const MOST_ROWS = 400;
  const place = Page.root.getElementById("points");
  const better = (column) => data.measures.find((measure) => measure.place === column)?.less ?? true;
  const state = { words: [], ranges: new Map(), sort: data.x, down: !better(data.x) };  // the best in what was searched for first
  const isFront = new Set(data.front), isBest = new Set(data.best);
  const value = (row, column) => data.rows[row][column];
  const numeric = data.columns.map((column, at) => data.rows.some((row) => typeof row[at] === "number") && data.rows.every((row) => row[at] === null || typeof row[at] === "number"));

  const kept = () => data.rows.map((_, row) => row).filter((row) => {
    const text = data.rows[row].map((cell, at) => (numeric[at] ? "" : String(cell ?? ""))).join(" ").toLowerCase();
    if (!state.words.every((word) => text.includes(word))) return false;
    for (const [column, spans] of state.ranges) {
      const cell = numeric[column] ? value(row, column) : orders[column].indexOf(String(value(row, column) ?? "–"));
      if (cell === null || !spans.some(([low, high]) => cell >= low && cell <= high)) return false;
    }
    return true;
  });
  const orders = data.columns.map((_, at) => (numeric[at] ? null : [...new Set(data.rows.map((row) => String(row[at] ?? "–")))].sort()));

  // The table.
  const head = place.querySelector("thead"), body = place.querySelector("tbody"), count = place.querySelector("[data-count]");
  const row = Page.element("tr");
  row.setAttribute("role", "row");
  data.columns.forEach((column, at) => {
    const cell = Page.element("th", undefined, [numeric[at] ? "num" : "", data.again.includes(at) ? "again" : ""].join(" ").trim());
    cell.scope = "col";
    cell.setAttribute("role", "columnheader");
    if (column.term) cell.dataset.term = column.term;
    if (at === state.sort) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    const button = Page.element("button", column.title);
    button.type = "button";
    button.addEventListener("click", () => {
      state.down = state.sort === at ? !state.down : false;
      state.sort = at;
      for (const each of row.cells) each.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      fill();
    });
    cell.append(button);
    row.append(cell);
  });
  head.append(row);
  const fill = () => {
    const rows = kept();
    if (state.sort !== null) {
      const at = state.sort;
      rows.sort((a, b) => {
        const [x, y] = [value(a, at), value(b, at)];
        if (x === null || y === null) return (x === null) - (y === null);
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
        return state.down ? -order : order;
      });
    }
    body.replaceChildren(...rows.slice(0, MOST_ROWS).map((number) => {
      const line = Page.element("tr");
      line.setAttribute("role", "row");
      data.columns.forEach((column, at) => {
        const text = Units.shown(value(number, at), column.unit);
        const known = value(number, at) !== null && value(number, at) !== "";
        const cell = Page.element("td", text, [numeric[at] ? "num" : text.length > 32 ? "long" : text.length > 16 ? "line" : "", known ? "" : "none", data.again.includes(at) ? "again" : ""].join(" ").trim());
        cell.setAttribute("role", "cell");
        cell.dataset.label = column.title;
        if (text.length > 32 && text.includes("=")) cell.replaceChildren(...Page.broken(text));
        if (numeric[at] && value(number, at) !== null) cell.dataset.value = String(value(number, at));
        if (column.term) cell.dataset.term = column.term;
        line.append(cell);
      });
      return line;
    }));
    count.textContent = `${rows.length.toLocaleString("en-US")} of ${data.rows.length.toLocaleString("en-US")} points${rows.length > MOST_ROWS ? `, ${MOST_ROWS} in the table` : ""}`;
    return rows;
  };
  place.querySelector("[data-filter]").addEventListener("input", (event) => {
    state.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    refresh();
  });

  // The front of two measures among the points that are kept.
  const axes = { x: data.x, y: data.y };
  const less = new Map(data.measures.map((measure) => [measure.place, measure.less]));
  const logarithmic = Page.root.querySelector("[data-log]");
  for (const select of Page.root.querySelectorAll("[data-axis]")) select.addEventListener("change", () => { axes[select.dataset.axis] = Number(select.value); refresh(); });
  logarithmic.addEventListener("change", () => refresh());
  const wide = (column, factor = 30) => { const all = data.rows.map((row) => row[column]).filter((cell) => cell > 0); return all.length > 1 && Math.max(...all) / Math.min(...all) > factor; };
  logarithmic.checked = wide(axes.x) || wide(axes.y);
  const label = (number) => data.columns.map((column, at) => [column.title, Units.shown(value(number, at), column.unit)]);
  const frontOf = (rows) => {
    const sign = (column) => (less.get(column) ? 1 : -1);
    const sorted = [...rows].sort((a, b) => sign(axes.x) * (value(a, axes.x) - value(b, axes.x)) || sign(axes.y) * (value(a, axes.y) - value(b, axes.y)));
    let best = Infinity;
    return sorted.filter((number) => { const here = sign(axes.y) * value(number, axes.y); if (here >= best) return false; best = here; return true; });
  };
  let shownRows = data.rows.map((_, number) => number);
  const named = (column) => data.measures.find((measure) => measure.place === column)?.title || data.columns[column].title;
  let drawFront = null;
  const host = Page.root.querySelector('[data-plot="front"]');
  const frontOptions = (width) => {
    const rows = shownRows.filter((number) => value(number, axes.x) !== null && value(number, axes.y) !== null);
    const positive = rows.every((number) => value(number, axes.x) > 0 && value(number, axes.y) > 0);
    // Decades are for what differs by factors: within one of them a logarithmic axis has next to no ticks.
    const decades = (column) => logarithmic.checked && positive && wide(column, 10);
    const unit = (column) => data.columns[column].unit;
    const range = (column) => {
      const all = rows.map((number) => value(number, column));
      if (!all.length) return {};
      const [low, high] = [Math.min(...all), Math.max(...all)];
      return decades(column) ? { type: "log", min: low / 1.15, max: high * 1.15 } : { type: "value", scale: true };
    };
    const inner = (column) => (decades(column) ? { axisLabel: { ...Plots.axis(unit(column)).axisLabel, showMinLabel: false, showMaxLabel: false } } : {});
    return {
      ...Plots.zoomed(),
      grid: { left: width < 560 ? 66 : 88, right: 26, top: 30, bottom: 46 },
      xAxis: Plots.axis(unit(axes.x), { ...inner(axes.x), ...range(axes.x), name: named(axes.x), nameLocation: "middle", nameGap: 28 }),
      yAxis: Plots.axis(unit(axes.y), { ...inner(axes.y), ...range(axes.y), name: named(axes.y), nameLocation: "end", nameTextStyle: { color: Page.colour("soft"), align: "left", fontSize: 12 } }),
      tooltip: { trigger: "item", ...Plots.tooltip(({ data: given }) => given && given.number !== undefined && Plots.table(`point ${value(given.number, data.number)}`, label(given.number).filter((_, at) => at !== data.number))) },
      series: [
        { type: "line", step: false, showSymbol: false, silent: true, color: Page.colour("communication"), lineStyle: { width: 1.5, type: "dashed" }, data: frontOf(rows).map((number) => [value(number, axes.x), value(number, axes.y)]) },
        { type: "scatter", cursor: "default", data: rows.map((number) => ({
          value: [value(number, axes.x), value(number, axes.y)], number, symbolSize: isBest.has(number) ? 13 : isFront.has(number) ? 11 : 7,
          itemStyle: { color: isBest.has(number) ? Page.colour("path") : isFront.has(number) ? Page.colour("communication") : Page.colour("compute"), opacity: isBest.has(number) || isFront.has(number) ? 0.95 : 0.45 },
        })) },
      ],
    };
  };

  // Parallel coordinates: a line for each point, axes for what varies and what is measured.
  const parallelHost = Page.root.querySelector('[data-plot="parallel"]');
  const letters = (column) => (numeric[column] ? 0 : Math.max(...orders[column].map((each) => each.length)));
  // What has long names comes first: they stand beside the picture then, not over its lines.
  const longest = data.axes.reduce((most, column) => Math.max(most, letters(column)), 0);
  const lanes = [...data.axes].sort((a, b) => (letters(b) > 8 && letters(b) === longest) - (letters(a) > 8 && letters(a) === longest));
  parallelHost.style.setProperty("--lanes", lanes.length);
  const BESIDE = 150;
  // Axes stand close to each other: short names, and numbers of one unit that the name has.
  const counted = (column) => numeric[column] && /^([a-z]+\/s|USD)$/.test(data.columns[column].unit);
  const short = (column) => `${named(column).split(" of ")[0]}${counted(column) ? `, ${data.columns[column].unit}` : ""}`;
  const brief = (amount) => { const [size, letter] = [[1e9, " G"], [1e6, " M"], [1e3, " k"]].find(([least]) => Math.abs(amount) >= least) || [1, ""]; return `${Number((amount / size).toPrecision(3))}${letter}`; };
  const ticks = (column) => (counted(column) ? { formatter: brief } : data.columns[column].unit === "W" ? { formatter: (amount) => `${brief(amount)}${Math.abs(amount) < 1e3 ? " " : ""}W` } : {});
  const parallelOptions = () => {
    const narrow = getComputedStyle(parallelHost).getPropertyValue("--stacked").trim() === "1"; // axes lie under each other there
    const beside = !narrow && letters(lanes[0]) > 8;
    const said = { color: Page.colour("soft"), hideOverlap: true, textBorderColor: Page.colour("paper"), textBorderWidth: 3, ...(narrow ? { alignMinLabel: "left", alignMaxLabel: "right" } : {}) };
    const words = (at) => (narrow ? { show: letters(lanes[at]) * orders[lanes[at]].length < 40, fontSize: 10 } : at === 0 && beside ? { margin: -8, align: "right", fontSize: 10, width: BESIDE - 20, overflow: "truncate" } : { fontSize: 10, width: 110, overflow: "truncate" });
    const naming = narrow ? { nameLocation: "start", nameGap: 0, nameTextStyle: { color: Page.colour("ink"), fontSize: 11, fontWeight: 600, align: "left", verticalAlign: "bottom", padding: [0, 0, 7, 0], textBorderColor: Page.colour("paper"), textBorderWidth: 3 } } : { nameTextStyle: { color: Page.colour("soft"), fontSize: 11 }, nameGap: 14 };
    return {
    parallel: { layout: narrow ? "vertical" : "horizontal", left: narrow ? 16 : beside ? BESIDE : 46, right: narrow ? 16 : 90, top: narrow ? 26 : 52, bottom: narrow ? 30 : 22, parallelAxisDefault: { ...naming, areaSelectStyle: { color: Page.colour("accent"), borderColor: Page.colour("accent"), opacity: 0.2, width: 18 } } },
    parallelAxis: lanes.map((column, at) => {
      const common = numeric[column] ? Plots.axis(data.columns[column].unit, { type: "value", scale: true, splitNumber: narrow ? 2 : 3, splitLine: { show: false } }) : { ...Plots.axis("", { splitLine: { show: false } }), type: "category", data: orders[column] };
      return { dim: at, name: short(column), nameRotate: !narrow && lanes.length > 9 ? 18 : 0, ...common, ...naming, axisLabel: { ...common.axisLabel, ...said, ...(numeric[column] ? ticks(column) : { formatter: undefined, ...words(at) }) } };
    }),
    series: [{
      type: "parallel", smooth: false, inactiveOpacity: 0.03, activeOpacity: 0.8, progressive: 0, lineStyle: { width: 1 },
      data: data.rows.map((_, number) => number).filter((number) => value(number, data.x) !== null).map((number) => ({
        value: lanes.map((column) => (numeric[column] ? value(number, column) ?? "-" : String(value(number, column) ?? "–"))),
        lineStyle: { color: isBest.has(number) ? Page.colour("path") : isFront.has(number) ? Page.colour("communication") : Page.colour("compute"), width: isBest.has(number) || isFront.has(number) ? 2 : 1, opacity: isBest.has(number) || isFront.has(number) ? 0.95 : 0.28 },
      })),
    }],
    };
  };
  const refresh = () => { shownRows = fill(); drawFront(); };
  shownRows = fill();
  drawFront = Plots.chart(host, frontOptions);
  Plots.chart(parallelHost, parallelOptions, (plot) => plot.on("axisareaselected", () => {
    const option = plot.getOption();
    state.ranges.clear();
    option.parallelAxis.forEach((each, at) => {
      const spans = plot.getModel().getComponent("parallelAxis", at).activeIntervals;
      if (spans && spans.length) state.ranges.set(lanes[at], spans.map((span) => [...span].sort((a, b) => a - b)));
    });
    refresh();
  }));
};
