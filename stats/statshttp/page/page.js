'use strict';
// Refreshes the page in place: the same page is fetched again, and only what differs is changed, so that scroll
// position, open details, focus and what is typed stay. Without this script the links and the form do the same by loading.
(() => {
  const root = document.getElementById('page');
  const state = document.getElementById('state');
  const pause = document.getElementById('pause');
  let timer = 0, typing = 0, request = null, failures = 0, paused = false;

  // key tells which element of the old page is which of the new one.
  const key = (n) => n.nodeType === 1 ? n.getAttribute('data-key') || n.id || null : null;
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);

  function morph(from, to) {
    if (from.nodeType !== 1) {
      if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
      return;
    }
    if (from.hasAttribute('data-keep')) return;
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && !(name === 'open' && from.nodeName === 'DETAILS')) from.removeAttribute(name);
    }
    for (const { name, value } of to.attributes) {
      if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    children(from, to);
    if (from === document.activeElement) return;
    if (from.nodeName === 'INPUT') from.value = to.getAttribute('value') || '';
    if (from.nodeName === 'SELECT') from.value = to.value;
  }

  function children(from, to) {
    const keyed = new Map();
    for (const c of from.childNodes) if (key(c)) keyed.set(key(c), c);
    const stays = new Set([...to.childNodes].map(key));
    let old = from.firstChild;
    for (const n of [...to.childNodes]) {
      // What goes makes room first: what is moved around it would lose the focus, and with it what is being typed.
      while (old && key(old) && !stays.has(key(old))) {
        const next = old.nextSibling;
        old.remove();
        old = next;
      }
      let match = key(n) ? keyed.get(key(n)) : old && !key(old) && same(old, n) ? old : null;
      if (match && !same(match, n)) match = null;
      if (!match) {
        from.insertBefore(document.importNode(n, true), old);
        continue;
      }
      if (match === old) old = old.nextSibling;
      else from.insertBefore(match, old);
      morph(match, n);
    }
    while (old) {
      const next = old.nextSibling;
      old.remove();
      old = next;
    }
  }

  function show(page) {
    const fresh = page.getElementById('page');
    if (!fresh) return false;
    const focused = document.activeElement;
    morph(root, fresh);
    document.title = page.title;
    // An element that changes its place among its siblings loses the focus.
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    return true;
  }

  function tell(text, warn) {
    if (state.textContent !== text) state.textContent = text;
    state.classList.toggle('warn', !!warn);
  }

  const every = () => Number(root.dataset.refresh) || 0;
  const clock = () => new Date().toLocaleTimeString();
  const rest = () => paused ? 'Paused' : every() ? 'Live' : 'Refresh is off';

  function plan(wait) {
    clearTimeout(timer);
    if (!paused && every() && !document.hidden) timer = setTimeout(refresh, wait === undefined ? every() : wait);
  }

  function refresh() {
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && root.contains(selection.anchorNode)) {
      tell('Waiting while text is selected');
      plan(1000);
      return;
    }
    load(location.href);
  }

  function load(url, done) {
    if (request) request.abort();
    clearTimeout(timer);
    const r = request = new XMLHttpRequest();
    r.open('GET', url.split('#')[0]);
    r.responseType = 'document';
    r.setRequestHeader('Accept', 'text/html');
    r.timeout = 30000;
    r.onload = () => {
      request = null;
      if (r.status === 200 && r.responseXML) {
        if (done) done(); // first, so that relative links are those of the new address
        if (show(r.responseXML)) {
          failures = 0;
          tell(rest());
          plan();
          return;
        }
      }
      failed(r.status === 404 ? 'This connection is closed; these are its last numbers' : 'Answer ' + r.status + ' at ' + clock());
    };
    r.onerror = r.ontimeout = () => {
      request = null;
      failed(failures ? '' : 'No answer since ' + clock());
    };
    r.send();
  }

  function failed(text) {
    failures++;
    if (text) tell(text, true);
    plan(Math.min(30000, Math.max(every(), 1000) * 2 ** Math.min(failures, 5)));
  }

  function go(url, push, top) {
    load(url, () => {
      if (push) history.pushState(null, '', url);
      else history.replaceState(null, '', url);
      if (top) scrollTo(0, 0);
    });
  }

  function submit(push) {
    const form = root.querySelector('form');
    const values = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value !== '') values.append(name, value);
    go('?' + values, push);
  }

  root.addEventListener('click', (e) => {
    const a = e.target.closest('a');
    if (!a || a.classList.contains('plain') || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    go(a.getAttribute('href'), true, a.hasAttribute('data-top'));
  });
  root.addEventListener('submit', (e) => {
    e.preventDefault();
    clearTimeout(typing);
    submit(true);
  });
  root.addEventListener('input', (e) => {
    clearTimeout(typing);
    if (e.target.nodeName === 'SELECT') submit(true);
    else typing = setTimeout(submit, 250, false);
  });
  pause.addEventListener('click', () => {
    paused = !paused;
    pause.textContent = paused ? 'Resume' : 'Pause';
    tell(rest());
    plan(0);
  });
  document.addEventListener('visibilitychange', () => plan(0));
  addEventListener('popstate', () => load(location.href));

  pause.hidden = false;
  document.documentElement.classList.add('scripted');
  tell(rest());
  plan();
})();
