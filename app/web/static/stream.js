// Ask the server. The token is kept for this tab alone, and sent in a header.

const KEY = "gpudeck-token";
const AGAIN_MS = [500, 1000, 2000, 5000];

/** Take the token from the address of the link, and remove it from there. */
export function takeToken() {
  const given = location.hash.slice(1);
  if (given && !given.startsWith("/")) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) !== null;
}

/** Thrown where the server refuses the token. */
export class WrongToken extends Error {}

async function ask(path, signal) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` };
  const reply = await fetch(path, { headers, signal, cache: "no-store" });
  if (reply.status === 401) {
    sessionStorage.removeItem(KEY);
    throw new WrongToken();
  }
  if (!reply.ok) throw new Error(await reply.text());
  return reply;
}

/** Return the JSON at a path. */
export async function get(path) {
  return (await ask(path)).json();
}

/**
 * Call `handle(name, value)` with each event of a stream, and connect again when it breaks.
 * An event named `end` ends it. Return a function that stops it.
 */
export function follow(path, handle, onLink) {
  let stopped = false, failures = 0, abort = new AbortController();
  const run = async () => {
    while (!stopped) {
      try {
        const reply = await ask(path, abort.signal);
        for await (const [name, value] of events(reply.body)) {
          failures = 0;
          if (stopped || name === "end") return;
          handle(name, value);
        }
      } catch (error) {
        if (stopped) return;
        if (error instanceof WrongToken) return onLink("token");
      }
      onLink("lost");
      await new Promise((done) => setTimeout(done, AGAIN_MS[Math.min(failures++, 3)]));
    }
  };
  run();
  return () => { stopped = true; abort.abort(); };
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const found = /^event: (\w+)\ndata: (.*)$/s.exec(part);
      if (found) yield [found[1], JSON.parse(found[2])];
    }
  }
}
