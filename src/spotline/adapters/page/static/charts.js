"use strict";
// Draws the charts of a page with uPlot from the JSON beside each, again where that has changed.
(function () {
  const drawn = new WeakMap();
  const UNITS = {
    usd: (v) => "$" + v.toLocaleString("en-US", { maximumFractionDigits: v < 10 ? 2 : 0 }),
    usd_per_hour: (v) => "$" + v.toFixed(v < 1 ? 3 : 2) + "/h",
    instances: (v) => v.toLocaleString("en-US", { maximumFractionDigits: 1 }),
    percent: (v) => v.toFixed(v % 1 ? 1 : 0) + " %",
    hours: (v) => v.toLocaleString("en-US", { maximumFractionDigits: 1 }) + " h",
    share: (v) => (100 * v).toFixed(1) + " %",
    points: (v) => v.toLocaleString("en-US", { maximumFractionDigits: 2 }),
  };

  // Days by name, hours of 24: from this distance of ticks on, and with what where a day begins.
  const TIMES = [
    [86400 * 28, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
    [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  ];

  function colour(name, share) {
    const value = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
    if (share === undefined) return value;
    const parts = /^#(..)(..)(..)$/.exec(value);
    return parts ? `rgb(${parseInt(parts[1], 16)} ${parseInt(parts[2], 16)} ${parseInt(parts[3], 16)} / ${share})` : value;
  }

  function stackedOf(chart) {
    // From the last on: uPlot draws in order, so that each covers what it stands on.
    const sums = new Array(chart.at_s.length).fill(0);
    return chart.series.map((line) => line.values.map((value, at) => (sums[at] += value || 0)));
  }

  function dataOf(chart) {
    return [chart.at_s, ...(chart.stacked ? stackedOf(chart) : chart.series.map((line) => line.values))];
  }

  function marksOf(chart) {
    return {
      hooks: {
        draw: (plot) => {
          const { ctx, bbox } = plot;
          ctx.save();
          for (const mark of chart.marks) {
            const x = Math.round(plot.valToPos(mark.at_s, "x", true));
            if (x < bbox.left || x > bbox.left + bbox.width) continue;
            ctx.strokeStyle = colour(mark.colour);
            ctx.lineWidth = devicePixelRatio;
            ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
            ctx.beginPath();
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
            ctx.fillStyle = colour(mark.colour);
            ctx.font = `${11 * devicePixelRatio}px sans-serif`;
            const right = x > bbox.left + bbox.width * 0.8;
            ctx.textAlign = right ? "right" : "left";
            ctx.fillText(mark.name, x + (right ? -4 : 4) * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
          }
          ctx.restore();
        },
      },
    };
  }

  function optionsOf(chart, width) {
    const steps = uPlot.paths.stepped({ align: 1 });
    const format = UNITS[chart.unit];
    const lines = chart.series.map((line, place) => {
      const filled = chart.stacked || line.filled;
      return {
        label: line.name,
        stroke: () => colour(line.colour),
        fill: filled ? () => colour(line.colour, chart.stacked ? 0.75 : 0.15) : undefined,
        width: chart.stacked ? 0.5 : 1.75,
        dash: line.dashed ? [6, 4] : undefined,
        paths: line.steps ? steps : undefined,
        points: { show: chart.at_s.length === 1 },
        value: (plot, value, series, at) => {
          const own = at === null || at === undefined ? null : line.values[at];
          return own === null || own === undefined ? "–" : format(own);
        },
      };
    });
    const bands = chart.bands.map((band) => ({
      series: [band.high + 1, band.low + 1], fill: () => colour(band.colour, 0.2),
    }));
    if (chart.stacked) for (let at = chart.series.length; at > 1; at--) bands.push({ series: [at, at - 1] });
    const local = document.documentElement.dataset.times === "local";
    return {
      width, height: 240, bands,
      tzDate: local ? undefined : (ts) => uPlot.tzDate(new Date(ts * 1000), "Etc/UTC"),
      plugins: [marksOf(chart)],
      cursor: { points: { size: 6 }, drag: { x: true, y: false } },
      legend: { live: true },
      scales: { y: { range: (plot, low, high) => [Math.min(0, low), high > 0 ? high * 1.06 : 1] } },
      axes: [
        { stroke: () => colour("dim"), grid: { stroke: () => colour("edge"), width: 0.5 }, ticks: { stroke: () => colour("edge") },
          values: TIMES, space: 64 },
        { stroke: () => colour("dim"), grid: { stroke: () => colour("edge"), width: 0.5 }, ticks: { stroke: () => colour("edge") },
          size: 72, values: (plot, splits) => splits.map((value) => (value === null ? "" : format(value))) },
      ],
      series: [{ label: local ? "local time" : "UTC", value: local ? "{YYYY}-{MM}-{DD} {HH}:{mm}" : "{YYYY}-{MM}-{DD} {HH}:{mm}" }, ...lines],
    };
  }

  function draw(figure, again) {
    const place = figure.querySelector(".plot");
    const source = figure.querySelector(".chart-data");
    if (!place || !source) return;
    const text = source.textContent;
    const known = drawn.get(place);
    if (known && !again && known.text === text) return;
    const chart = JSON.parse(text);
    // The first of a stack is drawn last, in front of the taller ones behind it.
    if (known) known.plot.destroy();
    place.replaceChildren();
    const plot = new uPlot(optionsOf(chart, place.clientWidth || 600), dataOf(chart), place);
    drawn.set(place, { text, plot });
  }

  function drawAll(again) {
    document.querySelectorAll("figure.chart").forEach((figure) => draw(figure, again === true));
  }

  window.spotlineCharts = { drawAll };
  document.addEventListener("DOMContentLoaded", () => drawAll());
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    requestAnimationFrame(() => drawAll(true));
  });
})();
