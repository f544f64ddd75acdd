// The live view: the server renders every screen; this swaps in newer ones, and drives the chat box.
"use strict";

const live = document.getElementById("live");
const away = document.getElementById("away");
const data = document.body.dataset;

// Where the focus and the scroll positions are, by place in the document, so that a newer screen keeps them.
function places() {
  const active = document.activeElement;
  const all = [...live.querySelectorAll("a, button, summary, [tabindex]")];
  const boxes = [...live.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  const open = [...live.querySelectorAll("details[open]")].map((one) => one.id);
  return { href: active?.getAttribute("href"), number: all.indexOf(active), boxes, open };
}

function restore(was) {
  const all = [...live.querySelectorAll("a, button, summary, [tabindex]")];
  const same = was.href ? all.find((one) => one.getAttribute("href") === was.href) : null;
  if (was.number >= 0) (same ?? all[was.number])?.focus({ preventScroll: true });
  live.querySelectorAll(".scroll").forEach((box, n) => { box.scrollLeft = was.boxes[n] ?? 0; });
  was.open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
}

function show(html) {
  if (String(document.getSelection()) && live.contains(document.getSelection().anchorNode)) return;
  const was = places();
  live.innerHTML = html;
  restore(was);
  arm(live);
}

function arm(within) {
  within.querySelectorAll("[data-copy]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = data.copied;
      } catch {
        document.getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      }
    });
  });
}

function follow() {
  const events = new EventSource(data.events);
  events.onmessage = (event) => {
    away.hidden = true;
    show(JSON.parse(event.data));
  };
  events.onopen = () => { away.hidden = true; };
  events.onerror = () => {
    away.textContent = data.away;
    away.hidden = false;
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
  };
  addEventListener("pagehide", () => events.close());
}

function chat(form) {
  const [answer, went, send, stop] = ["answer", "went", "send", "stop"].map((id) => document.getElementById(id));
  let abort = null;
  form.hidden = false;
  stop.addEventListener("click", () => abort?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    abort = new AbortController();
    send.disabled = true;
    stop.disabled = false;
    answer.textContent = "";
    went.replaceChildren();
    const stream = form.stream.checked;
    const headers = { "content-type": "application/json" };
    if (form.key?.value) headers.authorization = `Bearer ${form.key.value}`;
    const messages = [{ role: "user", content: form.prompt.value }];
    const body = JSON.stringify({ model: form.model.value, messages, stream });
    let id = null;
    try {
      const response = await fetch("/try", { method: "POST", headers, body, signal: abort.signal });
      id = response.headers.get("x-request-id");
      const streamed = response.headers.get("content-type")?.startsWith("text/event-stream");
      if (streamed) await read(response.body, (text) => { answer.textContent += text; });
      else answer.textContent = whole(await response.json());
    } catch (error) {
      if (error.name !== "AbortError") answer.textContent = String(error);
    }
    send.disabled = false;
    stop.disabled = true;
    if (id !== null) went.innerHTML = await inspected(id);
  });
}

function whole(body) {
  return body.error?.message ?? body.choices?.[0]?.message?.content ?? JSON.stringify(body);
}

async function read(stream, take) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: {")) continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) take(`\n${event.error.message}`);
      const delta = event.choices?.[0]?.delta;
      take(delta?.reasoning_content ?? delta?.reasoning ?? "");
      take(delta?.content ?? "");
    }
  }
}

// The call in the inspector; it is there once its last byte is written.
async function inspected(id) {
  const lang = document.documentElement.lang;
  const response = await fetch(`/calls/${encodeURIComponent(id)}?part=screen&lang=${lang}`);
  return response.text();
}

document.querySelectorAll(".still").forEach((one) => { one.hidden = true; });
arm(live);
if (data.events) follow();
const form = document.getElementById("try");
if (form) chat(form);
