// Plots by ECharts: roofline, memory, power, who sends to whom, comparisons. Tooltips are made of elements, so that names stay text.
"use strict";
const reportPlots = (Page) => {
  const Report = Page.report;
  const scene = (name, host) => Report.sections[name].scenes.find((each) => each.name === host.dataset.name);
  const tooltip = (formatter) => ({
    formatter: (given) => formatter(given), confine: true, borderWidth: 0, backgroundColor: Page.colour("ink"), padding: [8, 12],
    textStyle: { color: Page.colour("paper"), fontSize: 13 }, extraCssText: "max-width:340px;white-space:normal;overflow-wrap:anywhere;border-radius:9px",
  });
  const axis = (unit, more = {}) => ({
    axisLine: { lineStyle: { color: Page.colour("faint") } }, axisTick: { show: false }, splitLine: { lineStyle: { color: Page.colour("line") } },
    axisLabel: { color: Page.colour("soft"), fontSize: 11, hideOverlap: true, formatter: (value) => (unit === "share" ? `${Number((100 * value).toPrecision(3))} %` : Units.shown(value, unit)) },
    nameTextStyle: { color: Page.colour("soft"), fontSize: 12 }, minorSplitLine: { show: false }, ...more,
  });
  const renderer = Page.root.host ? "canvas" : "svg";  // SVG has styles in its markup, which the page on localhost does not take
  // A chart on a host, made again whenever colours or sizes change; what is returned makes it again for other reasons.
  const chart = (host, options, made = () => {}) => {
    let plot = null;
    const draw = () => {
      const width = Page.width(host), height = host.clientHeight;
      if (!width) return;  // not shown
      if (plot && (plot.getWidth() !== width || plot.getHeight() !== height)) plot.resize({ width, height });
      if (!plot) { plot = echarts.init(host, null, { renderer, width, height }); made(plot); }
      plot.setOption({ animation: false, textStyle: { fontFamily: Page.font() }, ...options(width) }, true);
    };
    Page.draws(draw, () => plot && plot.dispose());
    return draw;
  };
  const table = (title, pairs, meaning) => { const box = Page.lines(title, pairs, meaning); for (const row of box.querySelectorAll(".row")) row.style.cssText = "display:flex;justify-content:space-between;gap:18px"; return box; };

  // A frame that is drawn, or Ctrl and the wheel, zoom in; the round arrow shows all of it again.
  const zoomed = () => ({
    toolbox: { show: !Page.printed(), top: -4, right: 6, itemSize: 13, itemGap: 9, iconStyle: { borderColor: Page.colour("soft") }, emphasis: { iconStyle: { borderColor: Page.colour("compute"), textFill: Page.colour("ink") } }, feature: { dataZoom: { title: { zoom: "zoom to a frame", back: "back" }, filterMode: "none" }, restore: { title: "all of it" } } },
    dataZoom: ["xAxisIndex", "yAxisIndex"].map((which) => ({ type: "inside", [which]: 0, zoomOnMouseWheel: "ctrl", moveOnMouseMove: "shift", filterMode: "none" })),
  });

  const roofline = (host) => {
    const data = scene("roofline", host), roofs = Report.sections.roofline.roofs;
    const points = data.points;
    const memory = roofs.filter((roof) => roof.kind === "memory"), peaks = roofs.filter((roof) => roof.kind === "compute");
    const top = Math.max(...peaks.map((roof) => roof.value), ...points.map((point) => point.achieved));
    const ridge = Math.max(...peaks.map((roof) => roof.value)) / Math.min(...memory.map((roof) => roof.value));
    const least = Math.min(...points.map((point) => point.intensity)), most = Math.max(ridge * 4, ...points.map((point) => point.intensity));
    const low = 10 ** Math.floor(Math.log10(Math.min(least, ridge / 10))), high = 10 ** Math.ceil(Math.log10(most));
    const floor = 10 ** Math.floor(Math.log10(Math.min(...points.map((point) => point.achieved), top / 100)));
    const bounds = { compute: "compute", memory: "memory", latency: "overhead" };
    chart(host, (width) => {
      const narrow = width < 560;
      const decades = Math.ceil(Math.log10(top * 1.3) - Math.log10(floor));
      const lines = [];
      const highest = Math.max(...peaks.map((roof) => roof.value));
      const apart = 10 ** ((17 * decades) / Math.max(1, host.clientHeight - 70));  // what a line of letters takes on this axis
      let above = Infinity;  // of a roof that is too near to the one above it, the list below the plot has the figures
      for (const roof of [...peaks].sort((a, b) => b.value - a.value)) {
        const room = !narrow && above / roof.value > apart;
        above = roof.value;
        const start = roof.value / Math.max(...memory.map((each) => each.value));
        lines.push({ name: roof.name, data: [[Math.max(low, start), roof.value], [high, roof.value]], label: room ? `${roof.name} ${Units.shown(roof.value, "FLOP/s")}` : "", place: "insideEndTop" });
      }
      memory.forEach((roof, place) => lines.push({ name: roof.name, data: [[low, roof.value * low], [highest / roof.value, highest]], label: narrow ? "" : `${roof.name} ${Units.shown(roof.value, "B/s")}`, place: place ? "insideEndTop" : "insideStartTop" }));
      return {
        ...zoomed(),
        grid: { left: narrow ? 62 : 82, right: narrow ? 14 : 28, top: 24, bottom: 46 },
        xAxis: axis("", { type: "log", min: low, max: high, name: "FLOPs per byte", nameLocation: "middle", nameGap: 28, axisLabel: { color: Page.colour("soft"), fontSize: 11, formatter: (v) => String(Number(v.toPrecision(3))) } }),
        yAxis: axis("FLOP/s", { type: "log", interval: Math.ceil(decades / (narrow ? 6 : 11)), min: floor, max: 10 ** Math.ceil(Math.log10(highest * 1.3)) }),
        tooltip: { trigger: "item", ...tooltip(({ data: given }) => {
          const point = given.point;
          return point && table(point.name, [
            ["achieved", Units.shown(point.achieved, "FLOP/s")], ["intensity", Units.shown(point.intensity, "FLOP/B")], ["of its roof", Units.shown(point.sol, "share")],
            ["limited by", point.bound], ["in a step", Units.shown(point.seconds, "s")], ["of step", Units.shown(point.share, "share")], ["launches", Units.shown(point.count, "count")],
            ["type", point.type], ["source", point.source],
          ]);
        }) },
        series: [
          ...lines.map((line) => ({
            type: "line", data: line.data, showSymbol: false, silent: true, lineStyle: { color: Page.colour("faint"), width: 1.5 }, z: 1,
            markLine: { silent: true, symbol: "none", lineStyle: { color: "transparent" }, label: { show: true, formatter: line.label, position: line.place, color: Page.colour("soft"), fontSize: 11, backgroundColor: line.label ? Page.colour("paper") : "transparent", padding: [1, 3], borderRadius: 3 }, data: [[{ coord: line.data[0] }, { coord: line.data[1] }]] },
          })),
          {
            type: "scatter", z: 3, cursor: "default",
            symbolSize: (_, { data: given }) => Math.max(5, Math.sqrt(given.point.share) * (narrow ? 64 : 96)),
            itemStyle: { opacity: 0.72, borderColor: Page.colour("paper"), borderWidth: 1 },
            data: points.map((point) => ({ value: [point.intensity, point.achieved], point, itemStyle: { color: Page.colour(bounds[point.bound] || "compute") } })),
          },
        ],
      };
    });
  };

  // Values of several series at all of their moments together: what stacked areas need.
  const joined = (series) => {
    const moments = [...new Set(series.flatMap((each) => each.at))].sort((a, b) => a - b);
    const values = series.map((each) => { let place = 0; return moments.map((at) => { while (place + 1 < each.at.length && each.at[place + 1] <= at) place++; return each.values[place] || 0; }); });
    return { moments, values };
  };
  const mark = (value, text, colour) => ({ silent: true, symbol: "none", animation: false, lineStyle: { color: colour, type: "dashed" }, label: { formatter: text, position: "insideEndTop", color: colour, fontSize: 11 }, data: [{ yAxis: value }] });

  const memory = (host) => {
    const data = scene("memory", host), capacity = Report.sections.memory.capacity;
    const { moments, values } = joined(data.parts);
    const known = { parameter: "compute", weights: "compute", "optimizer state": "overhead", gradients: "communication", activations: "memory", temporaries: "memory", batch: "faint", outputs: "idle" };
    // Every part has a colour of its own: by its name, else one that no other has.
    const shades = new Map(), named = (name) => known[name] || known[Object.keys(known).find((each) => name.includes(each))];
    const spare = ["path", "faint", "idle", "communication", "overhead", "memory", "compute"];
    for (const part of data.parts) { const own = named(part.name); if (own && ![...shades.values()].includes(own)) shades.set(part.name, own); }
    for (const part of data.parts) if (!shades.has(part.name)) shades.set(part.name, spare.find((each) => ![...shades.values()].includes(each)) || "faint");
    const shade = (name) => shades.get(name);
    // Ticks at round numbers of the largest binary unit.
    const peak = Math.max(...data.total.values);
    const small = peak < capacity * 0.35;  // a picture up to the capacity would be empty
    const most = small ? peak * 1.25 : Math.max(capacity, peak) * 1.06;
    const unit = 1024 ** Math.floor(Math.log2(most) / 10), rough = most / unit / 5, power = 10 ** Math.floor(Math.log10(rough));
    const tick = unit * power * [1, 2, 5, 10].find((n) => n * power >= rough);
    chart(host, (width) => ({
      grid: { left: width < 560 ? 64 : 82, right: 24, top: 34, bottom: 34 },
      title: small ? { text: `capacity ${Units.shown(capacity, "B")}, above the picture`, right: 24, top: 36, textStyle: { color: Page.colour("path"), fontSize: 11, fontWeight: 400 } } : undefined,
      legend: { top: 0, type: "scroll", icon: "roundRect", itemWidth: 10, itemHeight: 10, textStyle: { color: Page.colour("soft"), fontSize: 12 } },
      xAxis: axis("s", { type: "value", min: 0, max: data.end_s, splitLine: { show: false }, axisLabel: { color: Page.colour("soft"), fontSize: 11, hideOverlap: true, showMaxLabel: false, formatter: (v) => (v ? Units.shown(v, "s") : "0") } }),
      yAxis: axis("B", { type: "value", max: most, interval: tick, axisLabel: { color: Page.colour("soft"), fontSize: 11, showMaxLabel: false, formatter: (v) => (v ? Units.shown(v, "B") : "0") } }),
      tooltip: { trigger: "axis", axisPointer: { lineStyle: { color: Page.colour("faint") } }, ...tooltip((given) => {
        const held = given.filter((each) => each.value[1]);
        return table(Units.shown(given[0].value[0], "s"), [...held.reverse().map((each) => [each.seriesName, Units.shown(each.value[1], "B")]), ["in all", Units.shown(held.reduce((sum, each) => sum + each.value[1], 0), "B")]]);
      }) },
      series: data.parts.map((part, place) => ({
        name: part.name, type: "line", stack: "held", step: "end", showSymbol: false, lineStyle: { width: 0 }, areaStyle: { opacity: 0.78 },
        color: Page.colour(shade(part.name)), data: moments.map((at, index) => [at, values[place][index]]),
        markLine: place === 0 && !small ? mark(capacity, `capacity ${Units.shown(capacity, "B")}`, Page.colour("path")) : undefined,
      })),
    }));
  };

  const power = (host) => {
    const data = scene("power", host), { cap_w: cap, idle_w: idle, average_w: average } = Report.sections.power;
    chart(host, (width) => ({
      grid: { left: width < 560 ? 52 : 66, right: 24, top: 18, bottom: 34 },
      xAxis: axis("s", { type: "value", min: 0, max: data.end_s, splitLine: { show: false }, axisLabel: { color: Page.colour("soft"), fontSize: 11, hideOverlap: true, showMaxLabel: false, formatter: (v) => (v ? Units.shown(v, "s") : "0") } }),
      yAxis: axis("W", { type: "value", min: 0, max: Math.max(cap, ...data.series.values) * 1.1, splitNumber: 4, axisLabel: { color: Page.colour("soft"), fontSize: 11, showMaxLabel: false, formatter: (v) => Units.shown(v, "W") } }),
      tooltip: { trigger: "axis", axisPointer: { lineStyle: { color: Page.colour("faint") } }, ...tooltip((given) => table(Units.shown(given[0].value[0], "s"), [["power", Units.shown(given[0].value[1], "W")], ["average", Units.shown(average, "W")], ["idle", Units.shown(idle, "W")]])) },
      series: [{ type: "line", step: "end", showSymbol: false, color: Page.colour("compute"), lineStyle: { width: 1.2 }, areaStyle: { opacity: 0.22 }, data: data.series.at.map((at, index) => [at, data.series.values[index]]), markLine: mark(cap, `cap ${Units.shown(cap, "W")}`, Page.colour("path")) }],
    }));
  };

  const matrix = (host) => {
    const data = Report.sections.communication.matrices.find((each) => each.name === host.dataset.name);
    const blocks = Math.ceil(data.ranks / data.block);
    const names = Array.from({ length: blocks }, (_, place) => (data.block === 1 ? String(place) : `${place * data.block}–${Math.min(data.ranks, (place + 1) * data.block) - 1}`));
    const sizes = data.cells.map((cell) => cell[2]);
    const high = Math.log10(Math.max(...sizes)), low = Math.max(Math.log10(Math.min(...sizes)), high - 3);  // three decades of colour
    // The least colour is told from that of nothing.
    const shades = () => (Page.isDark() ? ["#2c4478", "#4f82e8", "#c4d8ff"] : ["#c3d4f8", "#6692ec", "#123a8c"]);
    const key = (left, top, length, upright) => {  // the colours' scale: ticks evenly along the logarithm
      const ticks = high - low > 0.05 ? [0, 1 / 3, 2 / 3, 1] : [1];
      const fill = { type: "linear", x: 0, y: upright ? 1 : 0, x2: upright ? 0 : 1, y2: 0, colorStops: shades().map((color, at) => ({ offset: at / 2, color })) };
      const at = (share) => (upright ? [left + 20, top + length * (1 - share)] : [left + length * share, top + 18]);
      return [
        { type: "rect", silent: true, shape: { x: left, y: top, width: upright ? 14 : length, height: upright ? length : 12 }, style: { fill: ticks.length > 1 ? fill : shades()[2] } },
        ...ticks.map((share) => ({ type: "text", silent: true, x: at(share)[0], y: at(share)[1], style: { text: `${low > Math.log10(Math.min(...sizes)) && share === 0 ? "≤ " : ""}${Units.shown(10 ** (low + share * (high - low)), "B")}`, fill: Page.colour("soft"), fontSize: 11, align: upright ? "left" : share === 0 ? "left" : share === 1 ? "right" : "center", verticalAlign: upright ? "middle" : "top" } })),
      ];
    };
    chart(host, (width) => {
      const beside = width >= 560;  // the scale, else it lies below
      const side = Math.min(width - 90, host.clientHeight - (beside ? 70 : 112));
      const left = Math.max(56, (width - side) / 2);
      // Names at even distances, as many as there is room for.
      const every = Math.ceil((blocks * Math.max(...names.map((name) => name.length)) * 8 + 8 * blocks) / side), step = [1, 2, 4, 8, 16, 32, 64].find((each) => each >= every) || every;
      const category = (name, more) => axis("", { type: "category", data: names, name, nameLocation: "middle", splitLine: { show: false }, axisLabel: { color: Page.colour("soft"), fontSize: 11, interval: (at) => at % step === 0 }, ...more });
      return {
        graphic: beside ? key(left + side + 26, 16 + side * 0.2, side * 0.6, true) : key(left, 16 + side + 56, side, false),
        grid: { left, top: 16, width: side, height: side, show: true, borderColor: Page.colour("line"), backgroundColor: Page.colour("ground") },
        xAxis: category("to rank", { nameGap: 26 }),
        yAxis: category("from rank", { inverse: true, nameGap: 40 }),
        visualMap: {
          show: false, min: high > low ? low : low - 1, max: high, dimension: 2, inRange: { color: shades() },
        },
        tooltip: { trigger: "item", ...tooltip(({ data: cell }) => table(`rank ${names[cell[1]]} to rank ${names[cell[0]]}`, [["sent in a step", Units.shown(cell[3], "B")]])) },
        series: [{ type: "heatmap", data: data.cells.map(([from, to, size]) => [to, from, Math.max(low, Math.log10(size)), size]), itemStyle: { borderWidth: blocks <= 32 ? 1 : 0, borderColor: Page.colour("paper") }, emphasis: { disabled: true }, progressive: 0 }],
      };
    });
  };

  const comparison = (host) => {
    const answers = Report.sections.comparison.answers;
    const targets = [...new Set(answers.map((each) => each.target))], several = targets.length > 1;
    // What all targets begin with tells none from another, and would take the room of what does.
    const words = targets.map((target) => target.split(" "));
    const same = several ? words[0].findIndex((word, place) => words.some((each) => each[place] !== word || place === each.length - 1)) : 0;
    const name = (each) => (several ? `${each.target.split(" ").slice(same).join(" ")}\n${each.on}` : each.on);
    const places = [...new Set(answers.map(name))], fidelities = [...new Set(answers.map((each) => each.fidelity))];
    const shades = ["compute", "memory", "communication", "overhead", "path", "faint"];
    host.style.height = `${Math.max(host.clientHeight, 70 + places.length * Math.max(several ? 38 : 24, 13 * fidelities.length + 12))}px`;  // every answer has its line
    const times = answers.flatMap((each) => [each.step_s, ...each.interval]).filter((value) => value > 0);
    chart(host, (width) => ({
      grid: { left: width < 560 ? 118 : 220, right: 30, top: 36, bottom: 34 },
      legend: { top: 0, type: "scroll", textStyle: { color: Page.colour("soft") } },
      xAxis: (() => { const made = axis("s", { type: "log", logBase: Math.max(...times) > 50 * Math.min(...times) ? 10 : 2, min: Math.min(...times) * 0.8, max: Math.max(...times) * 1.2 }); return { ...made, axisLabel: { ...made.axisLabel, showMinLabel: false, showMaxLabel: false } }; })(),
      yAxis: axis("", { type: "category", data: places, inverse: true, axisLabel: { color: Page.colour("soft"), fontSize: 11, lineHeight: 14, interval: 0, width: width < 560 ? 108 : 205, overflow: "truncate" } }),
      tooltip: { trigger: "item", ...tooltip(({ data: given }) => given.each && table(`${given.each.target} on ${given.each.on}`, [["fidelity", given.each.fidelity], ["step", Units.shown(given.each.step_s, "s")], ["low", Units.shown(given.each.interval[0], "s")], ["high", Units.shown(given.each.interval[1], "s")]])) },
      series: fidelities.flatMap((fidelity, place) => {
        const mine = answers.filter((each) => each.fidelity === fidelity), color = Page.colour(shades[place % shades.length]);
        const shift = (place - (fidelities.length - 1) / 2) * 13;
        return [
          { name: fidelity, type: "scatter", symbolSize: 11, symbolOffset: [0, shift], color, data: mine.map((each) => ({ value: [each.step_s, name(each)], each })) },
          { name: fidelity, type: "custom", silent: true, color, z: 1, encode: { x: [0, 1], y: 2 }, data: mine.filter((each) => each.interval.length).map((each) => [...each.interval, name(each)]),
            renderItem: (_, api) => { const a = api.coord([api.value(0), api.value(2)]), b = api.coord([api.value(1), api.value(2)]); return { type: "line", shape: { x1: a[0], y1: a[1] + shift, x2: b[0], y2: b[1] + shift }, style: { stroke: color, lineWidth: 2, opacity: 0.5 } }; } },
        ];
      }),
    }));
  };

  const kinds = { roofline, memory, power, matrix, comparison };
  for (const host of Page.root.querySelectorAll(".plot[data-plot]")) if (kinds[host.dataset.plot]) kinds[host.dataset.plot](host);
  return { chart, axis, tooltip, table, zoomed };
};
