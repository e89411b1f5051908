// Keeps the page up to date. A stream says when there is a new snapshot; the gateway then renders the
// page again, and only what differs is changed in place: focus, selection and scrolling stay.

const page = document.getElementById('page');
const live = document.getElementById('live');
const MAX_SILENCE = 45000; // The gateway sends something every 30 s.
const MAX_PAUSE = 15000;

// A personal gateway, and one with tokens, sends a page without data to a request without a token.
let token = sessionStorage.getItem('gpukill-token');
takeToken();
// A new tab gets the token from the others of this address.
const tabs = new BroadcastChannel('gpukill');
tabs.onmessage = ({ data }) => {
  if (data === 'token?' && token) tabs.postMessage({ token });
  if (data.token && !token) keepToken(data.token), start();
};

/** Takes the token from the address, where nobody should see it. */
function takeToken() {
  if (!/^#[0-9a-f]{64}$/.test(location.hash)) return;
  keepToken(location.hash.slice(1));
  history.replaceState(null, '', location.pathname + location.search);
}

function keepToken(text) {
  token = text;
  sessionStorage.setItem('gpukill-token', token);
}

function headers(more) {
  return token ? { Authorization: `Bearer ${token}`, ...more } : { ...more };
}

/** The JSON at a path, or the answer to a body. Throws a problem document. */
async function ask(path, body) {
  const post = { method: 'POST', body: JSON.stringify(body), headers: headers({ 'Content-Type': 'application/json' }) };
  const sent = fetch(path, { cache: 'no-store', headers: headers(), ...(body && post) });
  const answer = await sent.catch(() => { throw { detail: 'the gateway does not answer' }; });
  const json = await answer.json().catch(() => ({}));
  if (!answer.ok) throw json.detail ? json : { detail: `the gateway answered ${answer.status}` };
  return json;
}

/** A text for screen readers. Only what changes rarely is said. */
function say(text) {
  document.getElementById('say').textContent = text;
}

const keyOf = (node) => node.id || node.dataset?.key;
const isExtra = (node) => node?.dataset?.own === 'extra';

/** Makes an element like a fresh one. Elements with `data-own` belong to a script. */
function morph(old, fresh) {
  if (old.dataset.own !== undefined) return;
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of old.getAttributeNames()) {
    if (!fresh.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  }
  const kept = new Set(Array.from(fresh.children, keyOf));
  const byKey = new Map();
  for (const child of Array.from(old.children)) {
    const key = keyOf(child);
    if (key && !kept.has(key) && !isExtra(child)) child.remove();
    else if (key) byKey.set(key, child);
  }
  let at = old.firstChild;
  for (const next of Array.from(fresh.childNodes)) {
    while (isExtra(at)) at = at.nextSibling;
    const key = keyOf(next);
    const match = key ? byKey.get(key) : at && !keyOf(at) && at;
    if (!match || match.nodeName !== next.nodeName) {
      old.insertBefore(next, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    if (match.nodeType === Node.ELEMENT_NODE) morph(match, next);
    else if (match.data !== next.data) match.data = next.data;
  }
  while (at) {
    const rest = at;
    at = at.nextSibling;
    if (!isExtra(rest)) rest.remove();
  }
}

const policy = globalThis.trustedTypes?.createPolicy('gpukill', { createHTML: (text) => text });

/** Shows a page that the gateway rendered. */
function show(text) {
  const html = policy ? policy.createHTML(text) : text;
  const fresh = new DOMParser().parseFromString(html, 'text/html').getElementById('page');
  if (!fresh) return;
  const focused = document.activeElement;
  morph(page, fresh);
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  document.title = page.dataset.title;
  page.dispatchEvent(new Event('fresh'));
}

let tag = '';
let isLoading = false;
let isOutdated = false;

/** Requests the page again; once more if something was new meanwhile. */
async function refresh() {
  isOutdated = isLoading;
  if (isLoading) return;
  isLoading = true;
  try {
    const url = new URL(location.href);
    url.hash = '';
    url.searchParams.set('fragment', '1');
    const answer = await fetch(url, { cache: 'no-store', headers: headers(tag && { 'If-None-Match': tag }) });
    if (answer.status === 401) return lock();
    const isPage = answer.headers.get('content-type')?.startsWith('text/html');
    if (isPage && url.pathname === location.pathname) {
      show(await answer.text());
      tag = answer.headers.get('etag') ?? '';
    }
  } catch {
    // The stream notices that the gateway is away.
  } finally {
    isLoading = false;
    if (isOutdated) refresh();
  }
}

/** Asks for a token: there is none, or it is not valid any more. */
function lock() {
  sessionStorage.removeItem('gpukill-token');
  token = null;
  if (page.dataset.locked === undefined) return location.reload();
  document.getElementById('unlock').hidden = false;
  tabs.postMessage('token?');
}

let dataAt = performance.now() - 1000 * page.dataset.age;
let isCurrent = true;
let isConnected = false;
let lastByte = 0;
let stream = null;

function hear(event) {
  const field = (name) => event.match(new RegExp(`^${name}: (.*)$`, 'm'))?.[1];
  const data = JSON.parse(field('data') ?? 'null');
  const name = field('event');
  if (name !== 'snapshot' && name !== 'state') return;
  if (name === 'state') isCurrent = data.current;
  if (data.data_age_seconds != null) dataAt = performance.now() - 1000 * data.data_age_seconds;
  refresh();
}

/** Follows the stream until the tab is hidden. */
async function follow(pause = 1000) {
  const abort = new AbortController();
  stream = abort;
  try {
    const options = { headers: headers(), signal: abort.signal, cache: 'no-store' };
    const answer = await fetch('/api/v1/live?data=none', options);
    if (answer.status === 401) return lock();
    if (!answer.ok) throw answer;
    setConnected(true);
    pause = 1000;
    lastByte = performance.now();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      lastByte = performance.now();
      const events = (buffer + value).split('\n\n');
      buffer = events.pop();
      events.forEach(hear);
    }
  } catch {
    // It is opened again.
  }
  if (stream !== abort) return;
  setConnected(false);
  setTimeout(() => stream === abort && follow(Math.min(2 * pause, MAX_PAUSE)), pause * (0.5 + Math.random()));
}

function setConnected(now) {
  if (isConnected === now) return;
  isConnected = now;
  say(now ? 'The page is live.' : 'The connection to the gateway is lost. The page tries again.');
  showAge();
}

const ageText = (seconds) => (seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`);

function showAge() {
  const isLive = isConnected && isCurrent;
  const age = Math.max(0, Math.round((performance.now() - dataAt) / 1000));
  const text = isLive ? page.dataset.clock : `${ageText(age)} old`;
  if (live.textContent !== text) live.textContent = text;
  live.className = isLive ? 'live on' : 'live off';
  live.title = isLive ? 'The page is live' : isConnected ? 'gpukilld has no newer data' : 'The gateway does not answer: the page tries again';
  // A connection can end without a sign.
  if (isConnected && performance.now() - lastByte > MAX_SILENCE) stream.abort();
}

function start() {
  if (document.hidden) return;
  // A page with data has it fresh, and the stream begins with what is newer.
  if (page.dataset.locked !== undefined) return token ? refresh().then(() => page.dataset.locked ?? follow()) : lock();
  follow();
}

document.addEventListener('visibilitychange', () => {
  const old = stream;
  stream = null;
  old?.abort();
  isConnected = false;
  start();
});
setInterval(() => document.hidden || showAge(), 1000);

// A browser sends no token with a link, so pages that need one are loaded in place.
async function go(url) {
  history.pushState(null, '', url);
  tag = '';
  await refresh();
  scrollTo(0, 0);
  document.getElementById('main').focus({ preventScroll: true });
}

document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href]');
  const isPlain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button);
  if (!token || !link || !isPlain || link.origin !== location.origin || link.getAttribute('href').startsWith('#')) return;
  event.preventDefault();
  go(link.href);
});
// The address changed: by the history's buttons, or because somebody put a token into it.
addEventListener('popstate', () => {
  takeToken();
  tag = '';
  if (page.dataset.locked === undefined) refresh();
  else start();
});
document.addEventListener('submit', (event) => {
  const form = event.target;
  if (form.id === 'unlock-form') {
    event.preventDefault();
    keepToken(form.elements.token.value.trim());
    start();
  } else if (token && form.method === 'get' && form.action) {
    event.preventDefault();
    go(`${new URL(form.action).pathname}?${new URLSearchParams(new FormData(form))}`);
  }
});
document.addEventListener('change', (event) => event.target.matches('form[data-auto] *') && event.target.form.requestSubmit());

start();
