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
  let at = -1;  // the window that is told, or was last
  const hide = () => {
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
  const show = (chart, x, y, above) => {
    const begin = data.begins[at], end = data.ends[at];
    tip.hidden = false;
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
    const middle = (begin + end) / 2;
    if ((chart.quiet || []).some(q => q[0] <= middle && middle < q[1])) part("p", "statistics not heard", tip);
    else if (!rows.length) part("p", "nothing measured", tip);
    if (more) part("p", "and " + more + " more with less", tip);
    const events = (data.events || []).filter(e => e[0] >= begin && e[0] < end || e[0] === end && at === data.ends.length - 1);
    for (const e of events.slice(0, 5)) part("p", e[1], tip, "event");
    if (events.length > 5) part("p", "and more of this kind: see the table below", tip, "event");
    const box = tip.getBoundingClientRect(), edge = document.documentElement.clientWidth;
    const left = x + 18 + box.width < edge ? x + 18 : x - 18 - box.width;
    const top = above ? y - 28 - box.height : y - 20;  // a finger hides what is under it
    tip.style.left = Math.max(6, Math.min(left, edge - box.width - 6)) + scrollX + "px";
    tip.style.top = Math.max(6, Math.min(top, innerHeight - box.height - 6)) + scrollY + "px";
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
      show(chart, e.clientX, e.clientY, e.pointerType === "touch");
    };
    const here = () => {
      const box = field.getBoundingClientRect();
      show(chart, box.left + box.width * (data.begins[at] + data.ends[at]) / 2 / data.span, box.top + 30);
    };
    const last = data.ends.length - 1;
    chart.node.addEventListener("pointermove", look);
    chart.node.addEventListener("pointerdown", look);
    // What a finger has shown stays when it is lifted, until another place is touched or the page is moved.
    chart.node.addEventListener("pointerleave", e => e.pointerType === "touch" || hide());
    chart.node.addEventListener("pointercancel", hide);
    chart.node.addEventListener("focus", () => {
      if (!chart.node.matches(":focus-visible")) return;
      if (at < 0) at = last;
      here();
    });
    chart.node.addEventListener("blur", e => e.relatedTarget && e.relatedTarget.closest(".chart") || hide());
    chart.node.addEventListener("keydown", e => {
      if (e.key === "Escape") return hide();
      const step = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9}[e.key];
      if (!step || e.ctrlKey || e.altKey || e.metaKey) return;
      e.preventDefault();
      at = Math.min(last, Math.max(0, at + step * (e.shiftKey ? 10 : 1)));
      here();
    });
  }
  document.addEventListener("pointerdown", e => e.target.closest && e.target.closest(".chart") || hide());
})();
