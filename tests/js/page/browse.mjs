// Opens the page in Chromium, says something, and prints the messages that it shows at the end.
// node browse.mjs FOLDER WITH node_modules, CHROMIUM, THE PAGE'S FILE, URL OF THE SERVICE
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, executablePath, file, url] = process.argv.slice(2);
const { chromium } = createRequire(pathToFileURL(`${modules}/package.json`))("playwright-core");
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage();
  page.on("pageerror", (error) => console.error(error));
  await page.goto(`${pathToFileURL(file)}?url=${encodeURIComponent(url)}`);
  await page.waitForFunction(() => window.chat?.status === "ready");
  await page.evaluate(() => void window.chat.sendMessage({ text: "go" }));
  await page.waitForFunction(() => window.chat.messages.at(-1)?.role === "assistant");
  await page.waitForFunction(() => window.chat.status !== "streaming" && window.chat.status !== "submitted");
  console.log(await page.locator("#shown").textContent());
} finally {
  await browser.close();
}
