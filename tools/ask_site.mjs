// Asks the search of build/site as its pages do: `node tools/ask_site.mjs` fails unless each question of site_questions.txt has its
// page as first result; `node tools/ask_site.mjs QUESTION…` prints the first five results of each.
import { readdirSync, readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";

const SITE = new URL("../build/site/", import.meta.url);
const QUESTIONS = new URL("site_questions.txt", import.meta.url);
const read = (url) => readFileSync(url, "utf8");

/** The search worker of the site, as a function from a message to its reply. */
function worker() {
  const folder = new URL("assets/javascripts/workers/", SITE);
  const listeners = [];
  let reply;
  const scope = createContext({
    console: { warn() {} },
    addEventListener: (_, listener) => listeners.push(listener),
    postMessage: (message) => reply(message),
  });
  scope.self = scope;
  runInContext(read(new URL(readdirSync(folder).find((name) => /^search\..*\.js$/.test(name)), folder)), scope);
  return (message) =>
    new Promise((resolve) => {
      reply = resolve;
      for (const listener of listeners) listener({ data: message });
    });
}

const tell = worker();
await tell({ type: 0, data: { ...JSON.parse(read(new URL("search/search_index.json", SITE))), options: {} } });

/** The pages that the search lists for a question, best first. */
async function pages(question) {
  const { data } = await tell({ type: 2, data: question });
  return data.items.map(([best]) => best.location.split("#")[0]);
}

const asked = process.argv.slice(2);
for (const question of asked) console.log(`${question}: ${(await pages(question)).slice(0, 5).join(", ")}`);
if (!asked.length) {
  for (const line of read(QUESTIONS).split("\n").filter((line) => line && !line.startsWith("#"))) {
    const [question, expected] = line.split(" | ");
    const [found] = await pages(question);
    if (found === expected) continue;
    console.error(`tools/site_questions.txt: ${question}: found ${found} as first result, expected ${expected}. Give the page`);
    console.error("words in tools/site_words.yaml, or a title or first lines that say it");
    process.exitCode = 1;
  }
}
