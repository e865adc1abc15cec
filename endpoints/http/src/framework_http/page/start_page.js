// The start page.  What comes from the server or the model enters the page as text only
// (textContent), never as markup.  The key stays in this tab's memory.
"use strict";

const REFRESH_MS = 5000;
const byId = (id) => document.getElementById(id);
let turns = [];
let key = "";
let model = null;
let running = null;

function headers(more) {
  return key ? { ...more, authorization: `Bearer ${key}` } : { ...more };
}

async function told(response) {
  const body = await response.json().catch(() => null);
  return (body && body.error && body.error.message) || `status ${response.status}`;
}

async function ask(path) {
  const response = await fetch(path, { headers: headers() });
  if (!response.ok) throw new Error(await told(response));
  return response.json();
}

async function show(id, path, text) {
  const place = byId(id);
  try {
    place.textContent = text(await ask(path));
    place.classList.remove("bad");
  } catch (error) {
    place.textContent = error.message;
    place.classList.add("bad");
  }
}

function refresh() {
  return Promise.all([
    show("health", "health", (found) => found.status),
    show("load", "load", (found) => `${found.running} running, ${found.waiting} waiting`),
  ]);
}

function models(found) {
  const [first] = found.data;
  model = first.id;
  byId("context").textContent = `${first.max_model_len} tokens`;
  return found.data.map((one) => one.id).join(", ");
}

function row(plugin) {
  const cells = [
    plugin.kind,
    plugin.name,
    plugin.version || "-",
    plugin.distribution || plugin.origin,
    plugin.state,
    plugin.reason,
  ];
  const line = document.createElement("tr");
  for (const text of cells) {
    line.appendChild(document.createElement("td")).textContent = text;
  }
  return line;
}

async function showPlugins() {
  const rows = [];
  await show("no-plugins", "plugins", (found) => {
    rows.push(...found.data.map(row));
    return "";
  });
  byId("plugins").replaceChildren(...rows);
}

function showAll() {
  return Promise.all([
    show("version", "version", (found) => found.version),
    show("models", "v1/models", models),
    refresh(),
    showPlugins(),
  ]);
}

function turn(kind, text) {
  const place = document.createElement("div");
  place.className = `turn ${kind}`;
  place.textContent = text;
  byId("turns").appendChild(place);
  place.scrollIntoView({ block: "end" });
  return place;
}

// The data of each server-sent event of a response, up to [DONE].
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ")) continue;
      const data = part.slice("data: ".length);
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function answer(talk, signal) {
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: headers({ "content-type": "application/json" }),
    body: JSON.stringify({ model, messages: talk, stream: true }),
    signal,
  });
  if (!response.ok) throw new Error(await told(response));
  let thought = null;
  let said = null;
  try {
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      for (const { delta } of event.choices) {
        if (delta.reasoning_content) {
          thought = thought || turn("reasoning", "");
          thought.textContent += delta.reasoning_content;
        }
        if (delta.content) {
          said = said || turn("assistant", "");
          said.textContent += delta.content;
        }
      }
    }
  } finally {
    talk.push({ role: "assistant", content: said ? said.textContent : "" });
  }
}

async function send(text) {
  const talk = turns;
  talk.push({ role: "user", content: text });
  turn("user", text);
  running = new AbortController();
  byId("send").disabled = true;
  byId("stop").disabled = false;
  try {
    await answer(talk, running.signal);
  } catch (error) {
    if (error.name !== "AbortError") turn("error", error.message);
    // A question without an answer is not asked again with the next one.
    if (talk[talk.length - 1].role === "user") talk.pop();
  } finally {
    running = null;
    byId("send").disabled = false;
    byId("stop").disabled = true;
    refresh();
  }
}

byId("keys").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value.trim();
  showAll();
});
byId("chat").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("message").value;
  if (running || !text.trim()) return;
  byId("message").value = "";
  send(text);
});
byId("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    byId("chat").requestSubmit();
  }
});
byId("stop").addEventListener("click", () => running && running.abort());
byId("clear").addEventListener("click", () => {
  if (running) running.abort();
  turns = [];
  byId("turns").replaceChildren();
});
showAll();
setInterval(refresh, REFRESH_MS);
