// Keeps the page up to date: replaces its changing part when the server sends a new one, adds to a log,
// and searches while somebody types.
"use strict";

const main = document.getElementById("content");
const connection = document.getElementById("connection");
const form = document.getElementById("filter");
let source = null;

function showConnection(text, state) {
  if (connection && connection.dataset.state !== state) {
    connection.dataset.state = state;
    connection.querySelector(".text").textContent = text;
  }
}

// What has the focus, so that it has it after its element was replaced.
function focusKey() {
  const element = document.activeElement;
  if (!element || !element.closest("#live")) return null;
  return element.id ? `#${CSS.escape(element.id)}`
    : element.getAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null;
}

function replaceLive(next) {
  const live = document.getElementById("live");
  if (!live || !next || live.dataset.digest === next.dataset.digest) return;
  const focused = focusKey();
  const scrolled = [...live.querySelectorAll(".scroll")].map((element) => element.scrollLeft);
  live.replaceWith(next);
  next.querySelectorAll(".scroll").forEach((element, at) => { element.scrollLeft = scrolled[at] || 0; });
  if (focused) next.querySelector(focused)?.focus({ preventScroll: true });
}

function parse(text) {
  return new DOMParser().parseFromString(text, "text/html").getElementById("live");
}

// The text of a log is only ever the text of a node. The oldest lines go when there is too much of it.
const MAX_LOG_CHARACTERS = 1 << 20;

function appendLog(text) {
  const log = document.getElementById("log");
  if (!log) return;
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.append(`${text}\n`);
  let size = Number(log.dataset.size || 0) + text.length + 1;
  while (size > MAX_LOG_CHARACTERS && log.childNodes.length > 1) {
    size -= log.firstChild.length;
    log.firstChild.remove();
  }
  log.dataset.size = size;
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

// The log that is followed begins with the lines that the page has.
function resetLog() {
  const log = document.getElementById("log");
  if (!log) return;
  log.replaceChildren();
  log.dataset.size = 0;
}

function follow() {
  if (!main || main.dataset.live !== "yes" || document.hidden) return;
  source?.close();
  source = new EventSource(location.pathname + location.search);
  source.addEventListener("open", () => showConnection("Live", "live"));
  source.addEventListener("fragment", (event) => replaceLive(parse(event.data)));
  source.addEventListener("reset", resetLog);
  source.addEventListener("log", (event) => appendLog(event.data));
  source.addEventListener("end", (event) => {
    source.close();
    showConnection(event.data, "lost");
  });
  source.addEventListener("session-end", () => location.reload());
  source.addEventListener("error", () => showConnection(
    source.readyState === EventSource.CLOSED ? "Load the page again" : "Reconnecting", "lost"));
}

// A hidden page is not kept up to date: browsers open only six connections to a server.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else follow();
});
window.addEventListener("pagehide", () => source?.close());

if (form) {
  let timer = 0;
  let search = 0;
  const update = async () => {
    const parameters = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...parameters]) if (!value) parameters.delete(name);
    const query = parameters.toString();
    const address = form.getAttribute("action") + (query ? `?${query}` : "");
    const own = ++search;
    const response = await fetch(address, { headers: { Accept: "text/html" } });
    const text = await response.text();
    // An answer that a later one has overtaken is dropped.
    if (own !== search || !response.ok) return;
    history.replaceState(null, "", address);
    replaceLive(parse(text));
    follow();
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(update, 150); });
  form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); update(); });
}

follow();
