// Charts of report.html. Draws what the script element "data" holds into the elements .plot:
//   charts[i] = {kind: "line" | "stack", series: [{name, color, style, x, y, lo, hi}]}
// y is the mean of a bucket of values, lo and hi (when there are buckets) its least and greatest;
// null: no finite value.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ns = "http://www.w3.org/2000/svg";
  const state = { smoothing: 0.6, log: new Set() };

  const svg = (name, attributes, parent) => {
    const element = document.createElementNS(ns, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(element);
    return element;
  };
  const text = (x, y, anchor, content, parent) => {
    svg("text", { x, y, "text-anchor": anchor }, parent).textContent = content;
  };

  // Four significant digits, thousands as k, M and so on.
  const short = (value) => {
    if (value === null) return "–";
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 1e-3) return (+value.toPrecision(3)).toExponential();
    for (const [limit, suffix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])
      if (size >= limit) return +(value / (suffix === "k" ? 1e3 : limit)).toPrecision(4) + suffix;
    return String(+value.toPrecision(4));
  };

  // As TensorBoard: an exponential average that does not begin at zero.
  const smooth = (values, weight) => {
    let average = 0, total = 0;
    return values.map((value) => {
      if (value === null) return null;
      average = weight * average + (1 - weight) * value;
      total = weight * total + (1 - weight);
      return average / total;
    });
  };

  const linearTicks = (low, high, count) => {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= 0.75 * rough);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
      ticks.push(+(i * step).toPrecision(12));
    return ticks;
  };
  const logTicks = (low, high) => {
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e)
      for (const f of high / low > 1000 ? [1] : [1, 2, 5])
        if (f * 10 ** e >= low * 0.999 && f * 10 ** e <= high * 1.001) ticks.push(f * 10 ** e);
    return ticks.length >= 2 ? ticks : [low, high];
  };

  const quantile = (values, fraction) => {
    const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
    return sorted.length ? sorted[Math.round(fraction * (sorted.length - 1))] : null;
  };

  const rangeOf = (chart, usesLog) => {
    let low = Infinity, high = -Infinity;
    const see = (value) => {
      if (value === null || (usesLog && value <= 0)) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    if (chart.kind === "stack") {
      low = 0;
      chart.series[0].x.forEach((_, i) => see(chart.series.reduce((sum, s) => sum + (s.y[i] || 0), 0)));
    } else {
      for (const s of chart.series) {
        s.y.forEach(see);
        // A few wild values are not to flatten the curve: of the extremes most count, not all.
        if (s.lo) { see(quantile(s.lo, 0.02)); see(quantile(s.hi, 0.98)); }
      }
    }
    if (low > high) return null;
    if (low === high) return usesLog ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
    if (usesLog) return [low / 1.15, high * 1.15];
    const margin = (high - low) * 0.06;
    return [chart.kind === "stack" || (low >= 0 && low < high * 0.3) ? 0 : low - margin, high + margin];
  };

  // Every run of finite values is a piece of its own.
  const path = (xs, ys) => {
    let d = "", open = false;
    xs.forEach((x, i) => {
      if (ys[i] === null) { open = false; return; }
      d += (open ? "L" : "M") + x.toFixed(1) + " " + ys[i].toFixed(1);
      open = true;
    });
    return d;
  };
  const band = (xs, lows, highs) => {
    let d = "", from = 0;
    const close = (to) => {
      if (to - from > 1) {
        for (let i = from; i < to; ++i) d += (i === from ? "M" : "L") + xs[i].toFixed(1) + " " + highs[i].toFixed(1);
        for (let i = to - 1; i >= from; --i) d += "L" + xs[i].toFixed(1) + " " + lows[i].toFixed(1);
        d += "Z";
      }
      from = to + 1;
    };
    xs.forEach((_, i) => { if (lows[i] === null || highs[i] === null) close(i); });
    close(xs.length);
    return d;
  };

  const drawings = [];

  const draw = (box, chart, index) => {
    const width = box.clientWidth, height = box.clientHeight;
    box.textContent = "";
    if (width < 50) return;
    const usesLog = state.log.has(index);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, box);
    const left = 50, right = width - 8, top = 10, bottom = height - 22;
    const range = rangeOf(chart, usesLog);
    if (!range) { text(width / 2, height / 2, "middle", usesLog ? "no value above 0" : "no finite value", root); return; }
    let first = Infinity, last = -Infinity;
    for (const s of chart.series) if (s.x.length) { first = Math.min(first, s.x[0]); last = Math.max(last, s.x[s.x.length - 1]); }
    const span = last > first ? last - first : 1;
    const px = (step) => last > first ? left + (step - first) / span * (right - left) : (left + right) / 2;
    const scale = usesLog ? Math.log10 : (v) => v;
    const low = scale(range[0]), high = scale(range[1]);
    const py = (value) => value === null || (usesLog && value <= 0) ? null
      : Math.min(Math.max(bottom - (scale(value) - low) / (high - low) * (bottom - top), top - 4), bottom + 4);
    for (const tick of usesLog ? logTicks(range[0], range[1]) : linearTicks(range[0], range[1], 4)) {
      const y = py(tick);
      svg("line", { x1: left, x2: right, y1: y, y2: y, class: "grid" }, root);
      text(left - 6, y + 4, "end", short(tick), root);
    }
    const ticks = last > first ? linearTicks(first, last, Math.max(2, Math.min(7, (right - left) / 75))) : [first];
    for (const tick of ticks.filter(Number.isInteger)) text(px(tick), height - 5, "middle", short(tick), root);
    svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }, root);

    if (chart.kind === "stack") {
      const xs = chart.series[0].x.map(px);
      let below = xs.map(() => 0);
      for (const s of chart.series) {
        const above = below.map((value, i) => value + (s.y[i] || 0));
        if (xs.length === 1) {
          const w = Math.min(80, (right - left) / 3);
          svg("rect", { x: xs[0] - w / 2, width: w, y: py(above[0]), height: Math.max(0, py(below[0]) - py(above[0])), fill: `var(--c${s.color})` }, root);
        } else {
          svg("path", { d: band(xs, below.map(py), above.map(py)), fill: `var(--c${s.color})`, "fill-opacity": .85 }, root);
        }
        below = above;
      }
    } else {
      for (const s of chart.series) {
        const xs = s.x.map(px), color = `var(--c${s.color})`;
        const isRough = s.style === "noisy" && s.x.length > 20 && state.smoothing > 0;
        if (s.lo) svg("path", { d: band(xs, s.lo.map(py), s.hi.map(py)), fill: color, "fill-opacity": .16 }, root);
        svg("path", { d: path(xs, s.y.map(py)), fill: "none", stroke: color, "stroke-width": isRough ? 1 : 1.8, "stroke-opacity": isRough ? .35 : 1, "stroke-linejoin": "round" }, root);
        if (isRough) svg("path", { d: path(xs, smooth(s.y, state.smoothing).map(py)), fill: "none", stroke: color, "stroke-width": 2, "stroke-linejoin": "round" }, root);
        if (s.style === "points" || s.x.length < 3)
          s.y.forEach((value, i) => { if (py(value) !== null) svg("circle", { cx: xs[i], cy: py(value), r: 3.2, fill: color }, root); });
      }
    }
    const cross = svg("line", { y1: top, y2: bottom, class: "cross", visibility: "hidden" }, root);
    drawings[index] = { px, cross, width };
  };

  const nearest = (xs, step) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] < step) low = middle; else high = middle; }
    return Math.abs(xs[low] - step) <= Math.abs(xs[high] - step) ? low : high;
  };
  const elapsed = (step) => {
    const clock = data.clock;
    if (!clock || !clock.x.length) return "";
    const seconds = clock.y[nearest(clock.x, step)];
    if (seconds === null) return "";
    const h = Math.floor(seconds / 3600), m = Math.floor(seconds / 60) % 60, s = Math.floor(seconds % 60);
    return ` · ${h ? h + " h " : ""}${h || m ? m + " min" : s + " s"}`;
  };

  document.querySelectorAll(".plot").forEach((box) => {
    const index = +box.dataset.chart, chart = data.charts[index], figure = box.closest("figure");
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    tip.setAttribute("aria-live", "polite");
    figure.appendChild(tip);
    const all = [...new Set(chart.series.flatMap((s) => s.x))].sort((a, b) => a - b);
    let at = -1;
    const hide = () => { tip.hidden = true; const d = drawings[index]; if (d) d.cross.setAttribute("visibility", "hidden"); };
    const show = (position) => {
      const d = drawings[index];
      if (!d || !all.length) return;
      at = position;
      const step = all[at], x = d.px(step);
      d.cross.setAttribute("x1", x);
      d.cross.setAttribute("x2", x);
      d.cross.setAttribute("visibility", "visible");
      tip.textContent = "";
      const head = document.createElement("div");
      head.textContent = `step ${step}${elapsed(step)}`;
      tip.appendChild(head);
      const rows = chart.kind === "stack" ? [...chart.series].reverse() : chart.series;
      for (const s of rows) {
        if (!s.x.length) continue;
        const i = nearest(s.x, step);
        const row = document.createElement("div"), name = document.createElement("span"), mark = document.createElement("i"), value = document.createElement("b");
        mark.style.background = `var(--c${s.color})`;
        name.append(mark, s.style === "points" && s.x[i] !== step ? `${s.name}, step ${s.x[i]}` : s.name);
        value.textContent = s.y[i] === null ? "not finite" : short(s.y[i]) + (s.lo && s.lo[i] !== s.hi[i] ? ` (${short(s.lo[i])} … ${short(s.hi[i])})` : "");
        row.append(name, value);
        tip.appendChild(row);
      }
      tip.hidden = false;
      const room = figure.clientWidth - tip.offsetWidth - 8;
      const beside = box.offsetLeft + x + 14;
      tip.style.left = Math.max(4, beside > room ? Math.min(room, box.offsetLeft + x - tip.offsetWidth - 14) : beside) + "px";
      tip.style.top = box.offsetTop + 6 + "px";
    };
    box.addEventListener("pointermove", (event) => {
      const d = drawings[index];
      if (!d || !all.length) return;
      const x = event.clientX - box.getBoundingClientRect().left;
      let best = 0;
      for (let low = 0, high = all.length - 1; ;) {
        const middle = (low + high) >> 1;
        if (high - low <= 1) { best = Math.abs(d.px(all[low]) - x) <= Math.abs(d.px(all[high]) - x) ? low : high; break; }
        if (d.px(all[middle]) < x) low = middle; else high = middle;
      }
      show(best);
    });
    box.addEventListener("pointerleave", hide);
    box.addEventListener("blur", hide);
    box.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, Home: -all.length, End: all.length, Escape: 0 }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      if (event.key === "Escape") return hide();
      show(Math.min(Math.max((at < 0 ? all.length - 1 : at) + move, 0), all.length - 1));
    });
    const redraw = () => { hide(); draw(box, chart, index); };
    const button = figure.querySelector("button.log");
    if (button) button.addEventListener("click", () => {
      if (state.log.has(index)) state.log.delete(index); else state.log.add(index);
      button.setAttribute("aria-pressed", state.log.has(index));
      redraw();
    });
    new ResizeObserver(redraw).observe(box);
    box.addEventListener("redraw", redraw);
  });

  const slider = document.getElementById("smoothing");
  if (slider) slider.addEventListener("input", () => {
    state.smoothing = +slider.value;
    document.getElementById("smoothing-value").textContent = slider.value;
    document.querySelectorAll(".plot").forEach((box) => box.dispatchEvent(new Event("redraw")));
  });

  document.querySelectorAll(".snippet").forEach((snippet) => {
    if (!navigator.clipboard) return;
    const button = document.createElement("button");
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(snippet.querySelector("pre").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    snippet.appendChild(button);
  });

  const search = document.getElementById("search");
  if (search) search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    const tree = document.getElementById("tree");
    tree.querySelectorAll(".leaf").forEach((leaf) => {
      leaf.hidden = wanted !== "" && !(leaf.dataset.path + " " + leaf.lastElementChild.textContent).toLowerCase().includes(wanted);
    });
    [...tree.querySelectorAll("details")].reverse().forEach((group) => {
      group.hidden = wanted !== "" && !group.querySelector(".leaf:not([hidden])");
      group.open = wanted !== "" ? !group.hidden : group.dataset.open === "1";
    });
  });
})();
