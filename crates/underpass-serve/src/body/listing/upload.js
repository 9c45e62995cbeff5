
(() => {
  "use strict";
  const PIECE = 64 << 20; // Proxies often refuse bodies of more than 100 MB.
  const WHOLE = 8 << 20; // Smaller files are sent by one PUT, larger ones so that they can be resumed.
  const AT_ONCE = 3;
  const DELAYS = [1, 2, 5, 10, 20, 40, 60];
  const TUS = { "Tus-Resumable": "1.0.0" };
  const panel = document.getElementById("upload");
  const base = new URL("./", location.href);
  const may = { replace: "overwrite" in panel.dataset, remove: "delete" in panel.dataset };

  // Elements
  const make = (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element) element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
  const icon = (name) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const use = document.createElementNS(svg.namespaceURI, "use");
    use.setAttribute("href", "#i-" + name);
    svg.setAttribute("aria-hidden", "true");
    svg.append(use);
    return svg;
  };
  const button = (name, label, act, properties = {}) =>
    make("button", { type: "button", className: "button", onclick: act, ...properties }, icon(name), make("span", {}, label));
  const small = (name, label, act) =>
    make("button", { type: "button", className: "small", title: label, "aria-label": label, onclick: act }, icon(name));

  // Texts
  const counted = (number, noun) => number.toLocaleString("en") + " " + noun + (number === 1 ? "" : "s");
  const human = (bytes) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (bytes >= 1023.5 && unit < 4) { bytes /= 1024; unit += 1; }
    return (unit && bytes < 9.95 ? bytes.toFixed(1) : Math.round(bytes)) + " " + units[unit];
  };
  const lasting = (seconds) => {
    if (!Number.isFinite(seconds)) return "";
    if (seconds < 60) return Math.max(1, Math.round(seconds)) + " s left";
    if (seconds < 5400) return Math.round(seconds / 60) + " min left";
    return (seconds / 3600).toFixed(1) + " h left";
  };
  const encoded = (path) => path.split("/").map(encodeURIComponent).join("/");
  const place = (path) => new URL("./" + encoded(path), base).href;
  const numbered = (path, number) => {
    const [, folder, stem, ending] = /^(.*\/)?([^/]+?)(\.[^/.]*|\.tar\.[a-z0-9]+)?$/.exec(path);
    return (folder || "") + stem + " (" + number + ")" + (ending || "");
  };

  // Requests
  class Trouble extends Error {
    constructor(kind, message) { super(message); this.kind = kind; }
  }
  const request = (item, method, url, fields, body, progress) => new Promise((done, fail) => {
    const xhr = new XMLHttpRequest();
    xhr.open(method, url);
    for (const [name, value] of Object.entries(fields)) xhr.setRequestHeader(name, value);
    if (progress) {
      xhr.upload.onprogress = (event) => {
        item.moved = Date.now();
        progress(event.loaded);
      };
    }
    xhr.onload = () => done(xhr);
    xhr.onerror = () => fail(new Trouble("again", "no connection"));
    xhr.onabort = () => fail(new Trouble("stopped"));
    if (item) {
      item.xhr = xhr;
      item.moved = Date.now();
    }
    xhr.send(body);
  });
  const reason = (xhr) => {
    const line = xhr.responseText.split("\n")[0];
    return /^\d{3} [^<]*$/.test(line) ? line.slice(line.indexOf(": ") < 0 ? 4 : line.indexOf(": ") + 2) : "status " + xhr.status;
  };
  const check = (xhr) => {
    const { status } = xhr;
    if (status >= 200 && status < 300) return xhr;
    if (status === 423 || status === 429 || status === 408 || (status >= 500 && status !== 501 && status !== 507)) {
      throw new Trouble("again", reason(xhr));
    }
    throw new Trouble(status === 412 ? "taken" : "failed", reason(xhr));
  };
  const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

  // Uploads that were begun earlier, by what identifies the file
  const key = (item) =>
    ["underpass-upload", base.pathname, item.path, item.size, item.file.lastModified].join("\n");
  const remembered = {
    get: (item) => { try { return localStorage.getItem(key(item)); } catch { return null; } },
    set: (item) => { try { localStorage.setItem(key(item), item.url); } catch { /* not resumed after a reload */ } },
    forget: (item) => { try { localStorage.removeItem(key(item)); } catch { /* none there */ } },
    all: () => {
      try {
        return Object.keys(localStorage).map((name) => name.split("\n"))
          .filter((parts) => parts[0] === "underpass-upload" && parts[1] === base.pathname);
      } catch { return []; }
    },
  };

  // Sending one file
  const guard = (item) => (item.replace ? {} : { "If-None-Match": "*" });
  // Whether a lost answer was that of success.
  const isOurs = async (item) => {
    const xhr = await request(item, "GET", place(item.path), { Range: "bytes=0-0", "Cache-Control": "no-cache" });
    const time = (name) => Date.parse(xhr.getResponseHeader(name));
    const size = xhr.getResponseHeader("Content-Range") || "/" + xhr.getResponseHeader("Content-Length");
    return xhr.status < 300 && size.endsWith("/" + item.size) &&
      time("Date") - time("Last-Modified") < Date.now() - item.begun + 2000;
  };
  const sendWhole = async (item) => {
    const isRepeated = Boolean(item.begun);
    item.begun ||= Date.now();
    const progress = (sent) => { item.sent = Math.min(sent, item.size); };
    const xhr = await request(item, "PUT", place(item.path), guard(item), item.file, progress);
    if (xhr.status !== 412 || !isRepeated || !(await isOurs(item))) check(xhr);
  };
  const offset = async (item) => {
    const xhr = await request(item, "HEAD", item.url, TUS);
    if ([403, 404, 410].includes(xhr.status)) return null;
    check(xhr);
    return Number(xhr.getResponseHeader("Upload-Offset"));
  };
  const create = async (item) => {
    const slash = item.path.lastIndexOf("/");
    const metadata = ["filename " + base64(item.path.slice(slash + 1))];
    if (slash > 0) metadata.push("relativePath " + base64(item.path));
    const fields = { ...TUS, ...guard(item), "Upload-Length": item.size, "Upload-Metadata": metadata.join(",") };
    const xhr = await request(item, "POST", base.href, fields);
    if (xhr.status === 409) throw new Trouble("taken", reason(xhr));
    item.url = new URL(check(xhr).getResponseHeader("Location"), base).href;
    remembered.set(item);
    return 0;
  };
  const sendPieces = async (item) => {
    item.url ||= remembered.get(item);
    let at = item.url ? await offset(item) : null;
    if (at === null) {
      remembered.forget(item);
      at = await create(item);
    }
    while (at < item.size) {
      const from = item.sent = at;
      const fields = { ...TUS, "Upload-Offset": at, "Content-Type": "application/offset+octet-stream" };
      const progress = (sent) => { item.sent = Math.min(from + sent, item.size); };
      const piece = item.file.slice(at, at + PIECE);
      const xhr = await request(item, "PATCH", item.url, fields, piece, progress);
      if (xhr.status === 404 || xhr.status === 410) {
        item.url = null;
        remembered.forget(item);
        throw new Trouble("again", reason(xhr));
      }
      if (xhr.status === 409 && !xhr.getResponseHeader("Upload-Offset")) {
        // Either the offset is another one, or the name has been taken meanwhile.
        const known = await offset(item);
        if (known === null || known === item.size) throw new Trouble("taken", reason(xhr));
        at = known;
        continue;
      }
      if (xhr.status !== 409) check(xhr);
      at = Number(xhr.getResponseHeader("Upload-Offset"));
      item.tries = 0;
    }
    remembered.forget(item);
  };
  const send = async (item) => {
    const { file } = item;
    try {
      await (item.size > WHOLE ? sendPieces(item) : sendWhole(item));
    } catch (trouble) {
      const unreadable = () => { throw new Trouble("failed", "the file has changed or cannot be read"); };
      if (trouble.kind === "again" && file.size) await file.slice(0, 1).arrayBuffer().catch(unreadable);
      throw trouble;
    }
  };

  // The queue
  const items = [];
  let paused = false;
  let answerForAll = null;
  let number = 0;
  let ignored = 0;
  const inState = (...states) => items.filter((item) => states.includes(item.state));
  const unfinished = () => inState("waiting", "sending", "retrying", "asking", "paused");
  const stop = (item, state) => {
    item.state = state;
    clearTimeout(item.timer);
    if (item.xhr) item.xhr.abort();
  };
  // A connection without a network may hang for a quarter of an hour before it fails.
  const STALLED = 60000;
  const interrupt = (item, message) => {
    stop(item, "retrying");
    item.message = message;
    item.timer = setTimeout(() => again(item), 30000);
  };
  const start = async (item) => {
    item.state = "sending";
    try {
      await send(item);
      if (item.state === "sending") finish(item, "done");
    } catch (trouble) {
      if (item.state === "sending") settle(item, trouble);
    }
    pump();
  };
  const settle = (item, { kind, message }) => {
    item.message = message;
    if (kind === "again") {
      item.state = "retrying";
      const delay = DELAYS[Math.min(item.tries, DELAYS.length - 1)];
      item.tries += 1;
      item.timer = setTimeout(() => again(item), delay * 1000);
    } else if (kind === "taken") {
      item.state = "asking";
      item.sent = 0;
      ask();
    } else {
      finish(item, "failed");
      say(item.path + " was not uploaded: " + (message || kind));
    }
  };
  const again = (item) => {
    clearTimeout(item.timer);
    if (item.state !== "sending") item.state = "waiting";
    pump();
  };
  const finish = (item, state) => {
    item.state = state;
    if (state === "done") item.sent = item.size;
    if (!unfinished().length) {
      const failed = inState("failed").length;
      say(counted(inState("done").length, "file") + " uploaded" + (failed ? ", " + failed + " failed" : ""));
    }
    refreshSoon();
  };
  const pump = () => {
    let free = paused ? 0 : AT_ONCE - inState("sending").length;
    for (const item of items) {
      if (free <= 0) break;
      if (item.state === "waiting") {
        start(item);
        free -= 1;
      }
    }
    show();
  };
  const cancel = (item) => {
    stop(item, "cancelled");
    items.splice(items.indexOf(item), 1);
    if (item.url) {
      request(null, "DELETE", item.url, TUS).catch(() => {});
      remembered.forget(item);
    }
    pump();
  };
  const isVisible = (path) => !path.split("/").some((name) => name.startsWith("."));
  const add = (found) => {
    if (!unfinished().length) {
      items.length = 0;
      answerForAll = null;
      ignored = 0;
    }
    for (const { file, path } of found) {
      if (isVisible(path)) {
        number += 1;
        items.push({ number, file, path, first: path, size: file.size, sent: 0, tries: 0, copies: 0, state: "waiting" });
      } else ignored += 1;
    }
    if (items.length) say(counted(items.length, "file") + " to upload");
    note.hidden = true;
    pump();
  };
  const makeFolders = async (paths) => {
    for (const path of paths.filter(isVisible)) {
      await request(null, "MKCOL", place(path) + "/", {}).catch(() => {});
    }
    if (paths.length) refreshSoon();
  };

  // Dialogs
  const dialog = (title, content, choices) => new Promise((done) => {
    const heading = make("h2", { id: "asked" }, title);
    const form = make("form", { method: "dialog" }, heading, ...content,
      make("div", { className: "choices" }, ...choices.map(([value, label, kind]) =>
        make("button", { value, className: "button " + (kind || ""), type: value ? "submit" : "button", onclick: value ? null : () => box.close("") }, label))));
    const box = make("dialog", { "aria-labelledby": "asked" }, form);
    const before = document.activeElement;
    box.onclose = () => {
      box.remove();
      if (before && before.isConnected) before.focus();
      done(box.returnValue);
    };
    document.body.append(box);
    box.showModal();
    const input = box.querySelector("input[type=text]");
    if (input) input.select();
    else (box.querySelector(".main") || box.querySelector("button")).focus();
  });
  const quoted = (path) => make("bdi", { className: "named" }, path);
  let isAsking = false;
  const ask = async () => {
    if (isAsking) return;
    isAsking = true;
    for (let item; (item = items.find((one) => one.state === "asking"));) {
      let answer = item.copies ? "rename" : answerForAll;
      if (!answer) {
        const all = make("input", { type: "checkbox", id: "for-all" });
        const choices = [["rename", "Keep both", "main"], ["skip", "Skip"]];
        if (may.replace) choices.splice(1, 0, ["replace", "Replace"]);
        const more = make("p", { className: "check" }, all, make("label", { htmlFor: "for-all" }, "Do this for all files of this upload"));
        const text = make("p", {}, "There is already ", quoted(item.path), ". To keep both, the new one becomes ", quoted(numbered(item.first, 1)), ".");
        answer = await dialog("This name is taken", [text, more], choices) || "skip";
        if (all.checked) answerForAll = answer;
      }
      if (item.state !== "asking") continue;
      if (answer === "skip") {
        finish(item, "skipped");
      } else {
        if (answer === "rename") {
          if (item.url) request(null, "DELETE", item.url, TUS).catch(() => {});
          remembered.forget(item);
          item.url = null;
          item.begun = 0;
          item.copies += 1;
          item.path = numbered(item.first, item.copies);
        }
        item.replace = answer === "replace";
        item.sent = 0;
        item.tries = 0;
        again(item);
      }
    }
    isAsking = false;
    pump();
  };
  const tell = (title, text) => dialog(title, [make("p", {}, text)], [["", "Close", "main"]]);
  const askName = async (title, label, value, choice) => {
    const input = make("input", { type: "text", id: "name", value, required: true, maxLength: 255, autocomplete: "off", spellcheck: false });
    const choices = [["ok", choice, "main"], ["", "Cancel"]];
    const answer = await dialog(title, [make("label", { htmlFor: "name" }, label), input], choices);
    return answer === "ok" ? input.value.trim() : "";
  };
  const change = async (method, url, fields, done) => {
    try {
      check(await request(null, method, url, fields));
      say(done);
    } catch (trouble) {
      await tell("This did not work", trouble.message || "no connection");
    }
    refresh();
  };
  const newFolder = async () => {
    const name = await askName("New folder", "Name of the folder", "", "Make folder");
    if (name) change("MKCOL", place(name) + "/", {}, "Folder " + name + " made");
  };

  // Rows of the listing
  const nameOf = (link) => link.querySelector("bdi").textContent.replace(/\/$/, "");
  const rename = async (link) => {
    const old = nameOf(link);
    const name = await askName("Rename", "New name", old, "Rename");
    // A reference relative to the request, which is right behind a proxy that removes a prefix, too.
    const fields = { Destination: "./" + encodeURIComponent(name), Overwrite: "F" };
    if (name && name !== old) change("MOVE", link.href, fields, old + " renamed to " + name);
  };
  const remove = async (link) => {
    const isFolder = link.classList.contains("folder");
    const what = isFolder ? "Delete this folder and everything in it?" : "Delete this file?";
    const answer = await dialog(what, [make("p", {}, quoted(nameOf(link)), " cannot be restored.")], [["", "Keep"], ["ok", "Delete", "danger"]]);
    if (answer === "ok") change("DELETE", link.href, {}, nameOf(link) + " deleted");
  };
  const addActions = () => {
    if (!may.remove) return;
    const head = document.querySelector("#files thead tr");
    if (head) head.append(make("th", { scope: "col", className: "acts" }, make("span", { className: "unseen" }, "Actions")));
    const rows = document.querySelectorAll("#rows tr");
    const some = (from) => {
      for (const row of Array.from(rows).slice(from, from + 500)) {
        const cell = make("td", { className: "acts" });
        const link = row.querySelector("a");
        if (!row.classList.contains("up")) {
          cell.append(
            small("rename", "Rename " + nameOf(link), () => rename(link)),
            small("delete", "Delete " + nameOf(link), () => remove(link)));
        }
        row.append(cell);
      }
      if (from + 500 < rows.length) requestAnimationFrame(() => some(from + 500));
    };
    some(0);
  };
  const refresh = async () => {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      // An index that was uploaded meanwhile has another policy, and does not get into this page.
      const policy = answer.headers.get("Content-Security-Policy") || "";
      if (!answer.ok || !policy.includes("default-src 'none'; style-src 'sha256-")) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = document.getElementById("files");
      const focused = main.contains(document.activeElement) && document.activeElement.closest("tr");
      const link = focused && focused.querySelector("a").getAttribute("href");
      main.replaceChildren(...page.getElementById("files").childNodes);
      document.getElementById("count").replaceChildren(...page.getElementById("count").childNodes);
      document.dispatchEvent(new Event("refreshed"));
      addActions();
      const same = link && Array.from(main.querySelectorAll("a")).find((one) => one.getAttribute("href") === link);
      if (same) same.focus();
    } catch { /* the page stays as it is */ }
  };
  let refreshing = 0;
  const refreshSoon = () => {
    const delay = unfinished().length ? 3000 : 200;
    if (delay === 200) refreshing = clearTimeout(refreshing);
    refreshing ||= setTimeout(() => { refreshing = 0; refresh(); }, delay);
  };

  // What is shown
  const spoken = make("p", { className: "unseen", role: "status" });
  const say = (text) => { spoken.textContent = text; };
  const line = make("p", { className: "sum" });
  const bar = make("progress", { max: 1, "aria-label": "All uploads" });
  const list = make("ul", { className: "queue" });
  const pauseAll = button("pause", "Pause all", () => {
    paused = !paused;
    if (paused) for (const item of inState("sending", "retrying")) stop(item, "waiting");
    pump();
  });
  const cancelAll = button("close", "Cancel all", async () => {
    const question = "Cancel all uploads that are not complete?";
    if (await dialog(question, [], [["", "Go on"], ["ok", "Cancel them", "danger"]]) === "ok") {
      const all = unfinished();
      for (const item of all) stop(item, "cancelled");
      for (const item of all) cancel(item);
    }
  });
  const clear = button("close", "Close", () => { items.length = 0; show(); });
  const queue = make("div", { className: "progress", hidden: true }, line, bar, make("div", { className: "acts" }, pauseAll, cancelAll, clear), list);
  const rows = new Map();
  const rowOf = (item) => {
    const row = { bar: make("progress", { max: 1 }), text: make("span", { className: "how" }) };
    const name = make("bdi", { className: "named" });
    const acts = make("span", { className: "acts" });
    row.element = make("li", {}, name, acts, row.bar, row.text);
    row.show = () => {
      const { state, sent, size, message } = item;
      name.textContent = item.path;
      row.bar.value = size ? sent / size : 0;
      row.bar.hidden = state === "failed";
      row.bar.setAttribute("aria-label", item.path);
      const share = human(sent) + " of " + human(size);
      row.text.textContent = {
        sending: share, waiting: sent ? share + ", waiting" : human(size) + ", waiting", paused: share + ", paused",
        retrying: (message || "no connection") + "; trying again", asking: "the name is taken", failed: message || "failed",
      }[state] || "";
      row.element.className = state;
      if (row.state === state) return;
      row.state = state;
      const hadFocus = acts.contains(document.activeElement);
      acts.replaceChildren(...[
        state === "failed" || state === "retrying" ? small("again", "Try again: " + item.path, () => { item.tries = 0; again(item); }) : "",
        state === "sending" || state === "waiting" ? small("pause", "Pause " + item.path, () => { stop(item, "paused"); pump(); }) : "",
        state === "paused" ? small("play", "Resume " + item.path, () => again(item)) : "",
        small("close", "Cancel " + item.path, () => cancel(item)),
      ].filter(Boolean));
      if (hadFocus) acts.firstElementChild.focus();
    };
    return row;
  };
  const WAITING_SHOWN = 5;
  const samples = [];
  let showing = 0;
  const show = () => {
    if (showing) return;
    showing = setTimeout(() => { showing = 0; draw(); }, 50);
    draw();
  };
  const draw = () => {
    queue.hidden = !items.length;
    const left = unfinished();
    const total = items.reduce((sum, item) => sum + (["failed", "skipped"].includes(item.state) ? 0 : item.size), 0);
    const sent = items.reduce((sum, item) => sum + (["failed", "skipped"].includes(item.state) ? 0 : item.sent), 0);
    const now = Date.now() / 1000;
    if (!inState("sending").length) samples.length = 0;
    else if (!samples.length || now - samples[samples.length - 1][0] > 0.4) samples.push([now, sent]);
    while (samples.length > 2 && now - samples[0][0] > 8) samples.shift();
    const first = samples[0] || [now, sent];
    const rate = now > first[0] ? Math.max(0, sent - first[1]) / (now - first[0]) : 0;
    const done = inState("done").length;
    const parts = left.length
      ? [done + " of " + counted(items.length, "file"), human(sent) + " of " + human(total)]
      : [counted(done, "file") + " uploaded", human(sent)];
    if (left.length && paused) parts.push("paused");
    else if (left.length && rate > 0) parts.push(human(rate) + "/s", lasting((total - sent) / rate));
    for (const state of ["skipped", "failed"]) if (inState(state).length) parts.push(inState(state).length + " " + state);
    if (ignored) parts.push(ignored + " hidden left out");
    line.textContent = parts.filter(Boolean).join(" · ");
    bar.value = total ? sent / total : left.length ? 0 : 1;
    pauseAll.hidden = cancelAll.hidden = !left.length;
    clear.hidden = left.length > 0;
    pauseAll.lastChild.textContent = paused ? "Resume all" : "Pause all";
    pauseAll.firstChild.firstChild.setAttribute("href", paused ? "#i-play" : "#i-pause");
    const waiting = inState("waiting");
    const shown = [...inState("sending", "retrying", "asking", "paused", "failed"), ...waiting.slice(0, WAITING_SHOWN)];
    shown.sort((one, other) => one.number - other.number);
    for (const [item, row] of rows) if (!shown.includes(item)) { row.element.remove(); rows.delete(item); }
    shown.forEach((item, at) => {
      if (!rows.has(item)) rows.set(item, rowOf(item));
      const row = rows.get(item);
      row.show();
      if (list.children[at] !== row.element) list.insertBefore(row.element, list.children[at] || null);
    });
    const more = waiting.length - WAITING_SHOWN;
    list.dataset.more = more > 0 ? "and " + counted(more, "more file") : "";
    document.title = (left.length ? Math.floor(100 * (bar.value || 0)) + " % · " : "") + title;
  };
  const { title } = document;
  setInterval(() => {
    for (const item of inState("sending")) {
      if (item.sent < item.size && Date.now() - item.moved > STALLED) interrupt(item, "nothing is received");
    }
    if (inState("sending", "retrying").length) show();
  }, 500);

  // Choosing and dropping
  const chooser = (properties) => {
    const input = make("input", { type: "file", multiple: true, hidden: true, ...properties });
    input.onchange = () => {
      add(Array.from(input.files, (file) => ({ file, path: file.webkitRelativePath || file.name })));
      input.value = "";
    };
    return input;
  };
  const files = chooser({ id: "choose-files" });
  const folder = chooser({ id: "choose-folder", webkitdirectory: true });
  const walk = async (entry, path, found, folders) => {
    if (entry.isFile) {
      const file = await new Promise((done) => entry.file(done, () => done(null)));
      if (file) found.push({ file, path });
      return;
    }
    const reader = entry.createReader();
    let count = 0;
    for (;;) {
      const some = await new Promise((done) => reader.readEntries(done, () => done([])));
      if (!some.length) break;
      count += some.length;
      for (const one of some) await walk(one, path + "/" + one.name, found, folders);
    }
    if (!count) folders.push(path);
  };
  const withParents = (paths) => {
    const all = paths.flatMap((path) => path.split("/").map((_, at, names) => names.slice(0, at + 1).join("/")));
    return Array.from(new Set(all));
  };
  const dropped = async (transfer) => {
    const entries = Array.from(transfer.items, (item) => item.kind === "file" && item.webkitGetAsEntry && item.webkitGetAsEntry());
    const plain = Array.from(transfer.files, (file) => ({ file, path: file.name }));
    if (!entries.some(Boolean)) return add(plain);
    const found = [];
    const folders = [];
    for (const entry of entries.filter(Boolean)) await walk(entry, entry.name, found, folders);
    add(found);
    await makeFolders(withParents(folders));
  };
  const hasFiles = (event) => event.dataTransfer && Array.from(event.dataTransfer.types).includes("Files");
  let depth = 0;
  const drag = (change, act) => (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth = change(depth);
    document.body.classList.toggle("dropping", depth > 0);
    if (act) act(event);
  };
  addEventListener("dragenter", drag((at) => at + 1));
  addEventListener("dragleave", drag((at) => Math.max(0, at - 1)));
  addEventListener("dragover", drag((at) => at, (event) => { event.dataTransfer.dropEffect = "copy"; }));
  addEventListener("drop", drag(() => 0, (event) => dropped(event.dataTransfer)));
  addEventListener("offline", () => { for (const item of inState("sending")) interrupt(item, "no network"); });
  addEventListener("online", () => { for (const item of inState("retrying")) { item.tries = 0; again(item); } });
  addEventListener("beforeunload", (event) => {
    if (unfinished().length) {
      event.preventDefault();
      event.returnValue = "";
    }
  });

  const earlier = remembered.all();
  const note = make("p", { className: "note", hidden: !earlier.length },
    make("span", {},
      counted(earlier.length, "upload") + " to this folder " + (earlier.length === 1 ? "is" : "are") + " not complete: ",
      make("bdi", {}, earlier.slice(0, 3).map((parts) => parts[2]).join(", ") + (earlier.length > 3 ? ", …" : "")),
      ". Choose the same files again to go on."),
    small("close", "Forget them", () => {
      for (const parts of earlier) {
        request(null, "DELETE", localStorage.getItem(parts.join("\n")), TUS).catch(() => {});
        localStorage.removeItem(parts.join("\n"));
      }
      note.hidden = true;
    }));
  panel.replaceChildren(
    make("div", { className: "tools" },
      button("upload", "Upload files", () => files.click()), button("upload", "Upload folder", () => folder.click()),
      button("folder", "New folder", newFolder)),
    make("p", { className: "hint" }, "or drop files and folders on this page"), files, folder, note, queue, spoken);
  document.body.append(make("div", { className: "target", "aria-hidden": "true" }, make("p", {}, "Drop to upload")));
  addActions();
})();
