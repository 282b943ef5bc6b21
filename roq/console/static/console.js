// Swaps the fragments of a page as the console sends them. Without this script pages load anew by
// themselves; nothing else needs it.
"use strict";

(() => {
  const url = document.body.dataset.live;
  if (!url || !window.EventSource) return;

  const AGAIN_MS = 5000;
  const LATE_MS = 20000;
  let source = null;
  let again = 0;
  let late = 0;

  const pulse = (text, tone) => {
    const place = document.getElementById("pulse");
    if (!place) return;
    place.textContent = text;
    place.className = `pulse ${tone}`;
  };

  // What is focused, scrolled or opened in a fragment stays so when the fragment is replaced.
  const keep = (element) => {
    const scrolls = [...element.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    const opened = [...element.querySelectorAll("details")].map((each) => each.open);
    const active = document.activeElement;
    const inside = active && active !== element && element.contains(active);
    const path = inside ? pathOf(active, element) : null;
    return () => {
      element.querySelectorAll(".scroll").forEach((each, index) => {
        each.scrollLeft = scrolls[index] || 0;
      });
      element.querySelectorAll("details").forEach((each, index) => {
        each.open = opened[index] || false;
      });
      if (!inside) return;
      const href = active.getAttribute("href");
      const same = href && [...element.querySelectorAll("a")].find((each) => each.getAttribute("href") === href);
      const other = same || find(path, element);
      if (other) other.focus({ preventScroll: true });
    };
  };

  const pathOf = (node, root) => {
    const path = [];
    for (let at = node; at !== root; at = at.parentElement) {
      path.unshift([...at.parentElement.children].indexOf(at));
    }
    return path;
  };

  const find = (path, root) => path.reduce((at, index) => at && at.children[index], root);

  const selecting = (element) => {
    const chosen = document.getSelection();
    return chosen && !chosen.isCollapsed && element.contains(chosen.anchorNode);
  };

  const swap = (name, html) => {
    const element = document.getElementById(name);
    if (!element) {
      window.location.reload(); // what could not be shown can be shown now: it is another page
      return;
    }
    if (selecting(element)) return;
    const restore = keep(element);
    element.innerHTML = html;
    restore();
  };

  const close = () => {
    clearTimeout(again);
    clearTimeout(late);
    if (source) source.close();
    source = null;
  };

  const lost = () => {
    pulse("the console does not answer, this page may be old", "bad");
    close();
    again = setTimeout(open, AGAIN_MS);
  };

  const alive = () => {
    clearTimeout(late);
    late = setTimeout(lost, LATE_MS);
    pulse("live", "good");
  };

  const open = () => {
    close();
    source = new EventSource(url);
    source.onopen = alive;
    source.onmessage = (event) => {
      const fragments = JSON.parse(event.data);
      Object.keys(fragments).forEach((name) => swap(name, fragments[name]));
      alive();
    };
    source.addEventListener("still", alive);
    source.addEventListener("ended", () => {
      close();
      window.location.reload();
    });
    source.onerror = lost;
    late = setTimeout(lost, LATE_MS);
  };

  // Browsers have few connections to one host: a page that nobody sees gives its own back.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else open();
  });
  window.addEventListener("pagehide", close);
  open();
})();
