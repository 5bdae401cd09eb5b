// Without this script the page is complete, but does not update. The script fetches the
// live part every second and replaces only what differs, so that focus, scrolling and
// pictures are kept.
"use strict";

const PERIOD = 1000;
const toast = document.getElementById("toast");
const changes = document.getElementById("changes");
const picker = document.querySelector("[data-picker]");
let viewer = document.body.dataset.viewer;
let timer, toastTimer, underway;

// morph makes the element old the same as next, touching only what differs.
function morph(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName || old.dataset?.key !== next.dataset?.key) {
    old.replaceWith(next.cloneNode(true));
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const olds = [...old.childNodes], nexts = [...next.childNodes];
  nexts.forEach((child, i) => (olds[i] ? morph(olds[i], child) : old.append(child.cloneNode(true))));
  olds.slice(nexts.length).forEach((child) => child.remove());
}

function show(html) {
  const main = document.getElementById("main");
  const next = new DOMParser().parseFromString(html, "text/html").getElementById("main");
  if (!next) return;
  const changed = next.dataset.answer !== main.dataset.answer;
  const arrived = next.dataset.arrived !== main.dataset.arrived && next.dataset.viewer === main.dataset.viewer && next.dataset.arrived;
  morph(main, next);
  if (arrived) changes.textContent = "Notification: " + arrived;
  else if (changed && next.dataset.contact) changes.textContent = "Now showing the newest photos of " + next.dataset.contact;
}

// refresh fetches the live part now, and drops a refresh that is under way: its answer may
// be older than the latest action.
async function refresh() {
  clearTimeout(timer);
  underway?.abort();
  const mine = (underway = new AbortController());
  let wait = PERIOD;
  try {
    const response = await fetch("/demo/live?viewer=" + encodeURIComponent(viewer), { signal: mine.signal });
    const html = await response.text();
    if (mine.signal.aborted) return;
    show(html);
    if (response.status === 404 || response.status === 400) return;
    if (!response.ok) wait = 3 * PERIOD;
  } catch (err) {
    if (mine.signal.aborted) return;
    disconnected();
    wait = 3 * PERIOD;
  }
  timer = setTimeout(refresh, wait);
}

// disconnected replaces what the page says of the present, until the next show.
function disconnected() {
  const texts = { source: "no connection", agree: "no connection: what is shown is from before, and may not be so any more" };
  for (const [id, text] of Object.entries(texts)) {
    const old = document.getElementById(id);
    if (!old) continue;
    old.className = id === "agree" ? "agree no" : "badge away";
    old.textContent = text;
  }
  say("No connection to the demo. Trying again.");
}

function say(text) {
  clearTimeout(toastTimer);
  if (toast.textContent !== text) toast.textContent = text; // else it would be read out again
  toastTimer = setTimeout(() => (toast.textContent = ""), 8000);
}

// act submits the form of a button. It stops polling until then, so that the next answer
// shown was asked for afterwards.
async function act(form) {
  clearTimeout(timer);
  underway?.abort();
  try {
    const response = await fetch(form.action, {
      method: "POST",
      body: new URLSearchParams(new FormData(form)),
      headers: { "X-Requested-With": "fetch" },
    });
    say(await response.text());
  } catch (err) {
    disconnected();
  }
  refresh();
}

function choose(id, remember) {
  viewer = id;
  document.getElementById("id").placeholder = id;
  if (remember) history.pushState({ viewer: id }, "", "/?viewer=" + encodeURIComponent(id));
  refresh();
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("[data-action]")) {
    event.preventDefault();
    act(form);
  } else if (form === picker && /^\s*([1-9][0-9]*)?\s*$/.test(form.elements.id.value)) {
    event.preventDefault();
    choose(form.elements.id.value.trim() || form.elements.viewer.value, true);
  }
});

picker.elements.viewer.addEventListener("change", (event) => {
  picker.elements.id.value = "";
  choose(event.target.value, true);
});

addEventListener("popstate", () => {
  const id = new URLSearchParams(location.search).get("viewer") || picker.elements.viewer.options[0]?.value;
  picker.elements.viewer.value = id;
  if (id) choose(id, false);
});

// A hidden page does not update.
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));

timer = setTimeout(refresh, PERIOD);
