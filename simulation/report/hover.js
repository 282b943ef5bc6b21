/* Values under the pointer, or at the place that arrow keys choose, in all charts at once. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "status");
  document.body.append(tip);
  const charts = (data.charts || []).map(c => ({...c, node: document.getElementById(c.id)}));
  const two = n => String(n).padStart(2, "0");
  const time = s => data.clock ? +s.toPrecision(3) + " " + data.clock
    : s < 60 ? +s.toPrecision(3) + " s"
    : s < 3600 ? Math.floor(s / 60) + ":" + two(Math.floor(s % 60)) + " min"
    : Math.floor(s / 3600) + ":" + two(Math.floor(s % 3600 / 60)) + ":" + two(Math.floor(s % 60)) + " h";
  const value = v => Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(3));
  const part = (name, text, parent, style) => {
    const node = document.createElement(name);
    node.textContent = text;
    if (style) node.className = style;
    parent.append(node);
    return node;
  };
  let at = -1;
  const hide = () => {
    at = -1;
    tip.hidden = true;
    document.body.classList.remove("looking");
  };
  const rowsOf = chart => {
    const rows = chart.rows.filter(r => r.v[at] != null);
    if (rows.length <= 13) return [rows, 0];
    const least = rows.map(r => r.v[at]).sort((a, b) => b - a)[11];
    const kept = rows.filter(r => !r.c.startsWith("x") || r.v[at] >= least).slice(0, 13);
    return [kept, rows.length - kept.length];
  };
  const show = (chart, x, y) => {
    const begin = data.begins[at], end = data.ends[at];
    document.body.style.setProperty("--at", 100 * (begin + end) / 2 / data.span + "%");
    document.body.classList.add("looking");
    tip.replaceChildren();
    part("b", time(begin) + " – " + time(end), tip);
    const [rows, more] = rowsOf(chart);
    const table = part("table", "", tip);
    for (const row of rows) {
      const line = part("tr", "", table);
      part("td", "", line, "key " + row.c);
      part("td", row.n, line);
      part("td", value(row.v[at]) + (chart.unit && (chart.unit[0] === "/" ? "" : " ") + chart.unit), line, "figure");
    }
    if (!rows.length) part("p", "nothing measured", tip);
    if (more) part("p", "and " + more + " more with less", tip);
    const events = (data.events || []).filter(e => e[0] >= begin && e[0] < end || e[0] === end && at === data.ends.length - 1);
    for (const e of events.slice(0, 5)) part("p", e[1], tip, "event");
    if (events.length > 5) part("p", "and more of this kind: see the table below", tip, "event");
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), edge = document.documentElement.clientWidth;
    const left = x + 18 + box.width < edge ? x + 18 : x - 18 - box.width;
    tip.style.left = Math.max(6, left) + scrollX + "px";
    tip.style.top = Math.max(6, Math.min(y - 20, innerHeight - box.height - 6)) + scrollY + "px";
  };
  const choose = seconds => {
    let low = 0, high = data.ends.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.ends[middle] < seconds) low = middle + 1; else high = middle;
    }
    at = low;
  };
  if (!(data.ends || []).length) return;
  for (const chart of charts) {
    const field = chart.node.querySelector(".field");
    const look = e => {
      const box = field.getBoundingClientRect();
      const share = (e.clientX - box.left) / box.width;
      if (share < -0.02 || share > 1.02) return hide();
      choose(Math.min(1, Math.max(0, share)) * data.span);
      show(chart, e.clientX, e.clientY);
    };
    chart.node.addEventListener("pointermove", look);
    chart.node.addEventListener("pointerdown", look);
    chart.node.addEventListener("pointerleave", hide);
    chart.node.addEventListener("blur", hide);
    chart.node.addEventListener("keydown", e => {
      const step = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9}[e.key];
      if (e.key === "Escape") return hide();
      if (!step) return;
      e.preventDefault();
      at = Math.min(data.ends.length - 1, Math.max(0, at + step));
      const box = field.getBoundingClientRect();
      show(chart, box.left + box.width * (data.begins[at] + data.ends[at]) / 2 / data.span, box.top + 30);
    });
  }
})();
