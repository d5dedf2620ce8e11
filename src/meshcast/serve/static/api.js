// Questions to the server: an answer, or a number to ask after it by; who asks hears how far it is, and may give up.

async function told(response) {
  const text = await response.text();
  let body = null;
  try { body = text ? JSON.parse(text) : null; } catch { body = { error: { code: "answer", message: text.slice(0, 200) } }; }
  return { status: response.status, body };
}

export class Problem extends Error {
  constructor(error, status) { super(error.message); this.error = error; this.status = status; }
}

export async function call(method, path, body, { signal, heard, raw } = {}) {
  const options = { method, signal, headers: {} };
  if (body !== undefined) {
    options.body = raw ? body : JSON.stringify(body);
    if (!raw) options.headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await told(await fetch(path, options));
    while (answer.status === 202) {
      const job = answer.body;
      if (heard) heard(job);
      try {
        answer = await told(await fetch(`/api/jobs/${job.job}?wait=0.7`, { signal }));
      } catch (error) {
        if (error.name === "AbortError") fetch(`/api/jobs/${job.job}`, { method: "DELETE", keepalive: true }).catch(() => {});
        throw error;
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ code: "connection", message: "The server does not answer.", fix: "is meshcast serve still running?" }, 0);
  }
  if (answer.status >= 400) throw new Problem((answer.body && answer.body.error) || { code: "http", message: `HTTP ${answer.status}` }, answer.status);
  return answer.body;
}
