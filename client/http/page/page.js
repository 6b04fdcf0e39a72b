// What `hearth top` shows, and a prompt to try. What comes from models and daemons is set as text,
// never as HTML. The key stays in this variable.
"use strict";

const REFRESH_MS = 2000;
const $ = (id) => document.getElementById(id);
let key = "";
let before = new Map(); // the last status of each model, by its name
let running = null; // AbortController of the answer that streams

function headers(more) {
  return key ? { ...more, Authorization: "Bearer " + key } : { ...more };
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: headers(options.headers), cache: "no-store", redirect: "error" });
  if (answer.status === 401) $("key-form").hidden = false;
  if (answer.ok) return answer;
  const text = await answer.text();
  let message = text;
  try { message = JSON.parse(text).error.message; } catch { /* not JSON: as it is */ }
  throw new Error(message || "error " + answer.status);
}

function trouble(error) {
  $("trouble").hidden = !error;
  $("trouble").textContent = error ? error.message : "";
}

// ---- the tables ----------------------------------------------------------------------------------

const bytes = (n) => n < 2 ** 30 ? (n / 2 ** 20).toFixed(1) + " MiB" : (n / 2 ** 30).toFixed(2) + " GiB";
const share = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "-";
const time = (s) => Math.floor(s / 3600) + ":" + String(Math.floor(s / 60 % 60)).padStart(2, "0");
const rate = (n) => n === null ? "-" : n.toFixed(1);

function row(values, kind) {
  const tr = document.createElement("tr");
  tr.className = kind;
  for (const value of values) tr.appendChild(document.createElement("td")).textContent = value;
  return tr;
}

// How fast a counter grew; null where that is not known.
function growth(now, then, name) {
  if (!then || then.pid !== now.pid || now.at <= then.at || now[name] < then[name]) return null;
  return (now[name] - then[name]) * 1000 / (now.at - then.at);
}

function slotRate(slot, now, then) {
  const was = then && (then.slots || []).find((s) => s.client === slot.client && s.slot === slot.slot);
  return was ? growth({ ...now, outputs: slot.outputs }, { ...then, outputs: was.outputs }, "outputs") : null;
}

function modelRow(model, now, then) {
  const name = model.id, where = model.owned_by === "hearth" ? "not loaded" : "elsewhere";
  if (!now) return row([name, where, "", "", "", "", "", ""], "idle");
  const held = now.pages_total - now.pages_free;
  return row([name, bytes(now.rss_bytes), share(held, now.pages_total), now.slots_active + "/" + now.slots_used,
              rate(growth(now, then, "output_tokens")), share(now.cached_tokens, now.prompt_tokens),
              share(now.accepted_drafts, now.drafted), time(now.uptime_s)], now.slots_active ? "busy" : "");
}

function slotRows(name, now, then) {
  return (now.slots || []).map((slot) => row([name, slot.name || "-", slot.state, slot.prompt, slot.output,
                                              rate(slotRate(slot, now, then))], slot.state === "idle" ? "idle" : ""));
}

async function statusOf(model) {
  if (model.status || model.owned_by !== "hearth") return null; // not loaded; another server's
  try {
    const status = await (await ask("status?model=" + encodeURIComponent(model.id))).json();
    return { ...status, at: performance.now() };
  } catch { return null; } // it went away meanwhile
}

function fillModels(models) {
  const select = $("model"), chosen = select.value;
  select.replaceChildren(...models.map((model) => new Option(model.id, model.id)));
  if (models.some((model) => model.id === chosen)) select.value = chosen;
}

async function refresh() {
  try {
    const models = (await (await ask("v1/models")).json()).data;
    const states = await Promise.all(models.map(statusOf));
    const isAlias = (i) => states[i] && states.findIndex((s) => s && s.pid === states[i].pid) < i;
    const shown = models.map((model, i) => [model, states[i]]).filter((_, i) => !isAlias(i));
    const known = shown.map(([model, state]) => [model.id, state]);
    const loaded = known.filter(([, state]) => state);
    if (models.map((m) => m.id).join("\n") !== [...$("model").options].map((o) => o.value).join("\n")) fillModels(models);
    $("models").replaceChildren(...shown.map(([model, state]) => modelRow(model, state, before.get(model.id))));
    $("slots").replaceChildren(...loaded.flatMap(([name, state]) => slotRows(name, state, before.get(name))));
    $("summary").textContent = loaded.length + " loaded, " + bytes(loaded.reduce((sum, [, s]) => sum + s.rss_bytes, 0));
    before = new Map(loaded);
    trouble(null);
  } catch (error) { trouble(error); }
}

async function watch() {
  if (!document.hidden) await refresh();
  setTimeout(watch, REFRESH_MS);
}

// ---- a prompt ------------------------------------------------------------------------------------

function requestOf(kind, prompt) {
  const body = { model: $("model").value, max_tokens: Number($("most").value) || 256, stream: true };
  return kind === "chat" ? ["v1/chat/completions", { ...body, messages: [{ role: "user", content: prompt }] }]
                         : ["v1/completions", { ...body, prompt }];
}

function show(event) {
  if (event.error) throw new Error(event.error.message);
  const choice = (event.choices || [])[0] || {}, delta = choice.delta || {};
  const text = choice.text || delta.reasoning_content || delta.content || "";
  if (text) $("answer").append(text); // a string becomes a text node
}

// The objects of a stream of events, as they come.
async function readEvents(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", done = false; !done;) {
    const part = await reader.read();
    done = part.done;
    const lines = (rest + (part.value || "")).split("\n");
    rest = lines.pop();
    for (const line of lines)
      if (line.startsWith("data: ") && line !== "data: [DONE]") show(JSON.parse(line.slice(6)));
      else if (line.startsWith(": ")) $("note").textContent = line.slice(2);
  }
}

async function send(event) {
  event.preventDefault();
  if (running) return;
  const [path, body] = requestOf($("kind").value, $("prompt").value), began = performance.now();
  running = new AbortController();
  $("send").disabled = true;
  $("stop").disabled = false;
  $("answer").replaceChildren();
  $("note").textContent = "";
  try {
    await readEvents(await ask(path, { method: "POST", body: JSON.stringify(body), signal: running.signal,
                                       headers: { "Content-Type": "application/json" } }));
    $("note").textContent = ((performance.now() - began) / 1000).toFixed(1) + " s";
  } catch (error) {
    $("note").textContent = error.name === "AbortError" ? "stopped" : error.message;
  }
  running = null;
  $("send").disabled = false;
  $("stop").disabled = true;
}

$("try").addEventListener("submit", send);
$("stop").addEventListener("click", () => running && running.abort());
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value;
  $("key").value = "";
  $("key-form").hidden = true;
  refresh();
});
watch();
