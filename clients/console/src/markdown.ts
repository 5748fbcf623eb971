// Markdown of models as GitHub renders it, as HTML that can do nothing: no images, no forms, no styles, no scripts; links open
// elsewhere. Code gets its language's colours and formulas are drawn once their libraries are here.
import DOMPurify from "dompurify";
import { Marked, type Token, type TokenizerAndRendererExtension } from "marked";
import markedAlert from "marked-alert";
import markedFootnote from "marked-footnote";
import { drawers, extra } from "./extras.ts";
import type { Source } from "./fold.ts";
import { visible } from "./format.ts";

const marked = new Marked({ gfm: true, breaks: true, async: false });
/** Attributes whose values are no addresses. */
const PLAIN = ["start", "align", "type", "checked", "disabled", "class", "aria-label", "data-copy", "data-draw", "data-note", "data-note-text"];
const FORMULA = "math semantics mrow mi mn mo mtext mspace mstyle mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mpadded mphantom menclose";
const FORMULA_ATTR = "display mathvariant mathcolor mathsize stretchy fence separator accent accentunder lspace rspace minsize maxsize movablelimits largeop symmetric linethickness rowspacing columnspacing columnalign rowlines columnlines scriptlevel displaystyle width height depth voffset notation";
const SAFE = {
  ALLOWED_TAGS: [
    ..."p br hr b i strong em del sup code pre blockquote ul ol li a h1 h2 h3 h4 h5 h6 section div span button".split(" "),
    ..."table thead tbody tr th td input".split(" "),
    ...FORMULA.split(" "),
  ],
  ALLOWED_ATTR: ["href", ...PLAIN, ...FORMULA_ATTR.split(" ")],
  ADD_URI_SAFE_ATTR: [...PLAIN, ...FORMULA_ATTR.split(" ")],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
    if (node.hasAttribute("href")) node.setAttribute("title", node.getAttribute("href") as string); // whatever its text says
  }
  if (node instanceof HTMLOListElement) {
    const digits = String(node.start + node.children.length - 1).length; // the room that the numbers need
    if (digits > 2) node.className = digits > 4 ? "digits-more" : `digits-${digits}`;
  }
  if (node.tagName === "INPUT") {
    if (node.getAttribute("type") !== "checkbox" || !node.hasAttribute("disabled")) node.remove(); // of task lists only
    node.setAttribute("aria-label", node.hasAttribute("checked") ? "Done" : "Not done");
  }
  if (node.tagName === "PRE" || node.tagName === "TABLE") node.setAttribute("tabindex", "0");
});

/** A tag that a model writes is shown as it was written. */
const escaped = (html: string): string =>
  html.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

/** An address as an attribute. What is encoded already stays so. */
function address(href: string): string {
  return escaped(href.isWellFormed() ? encodeURI(href).replaceAll("%25", "%") : href);
}

/** The links that are open around what is being rendered. */
let linked = 0;

/** Code with its language and a button that copies it; a Mermaid diagram has one that draws it too. The page finds the buttons by
 *  `data-copy` and `data-draw`. */
function listing(text: string, language: string, colours = true): string {
  const code = text === "" || text.endsWith("\n") ? text : `${text}\n`;
  const coloured = language === "" || !colours ? undefined : extra("highlight")?.(code, language);
  const named = language === "" ? "" : ` class="language-${escaped(language).replace(/&amp;(?=#?\w+;)/g, "&")}"`;
  const draw = language === "mermaid" ? `<button type="button" class="small plain" data-draw="">Draw diagram</button>` : "";
  return (
    `<div class="listing"><div class="listing-head"><span>${escaped(language)}</span>${draw}` +
    `<button type="button" class="small plain" data-copy="" aria-label="Copy the code">Copy</button></div>` +
    `<pre><code${named}>${coloured ?? escaped(code)}</code></pre></div>\n`
  );
}

function drawn(tex: string, source: string, block: boolean): string {
  return extra("formula")?.(tex, block) ?? (block ? `<pre><code>${escaped(source)}</code></pre>` : `<code>${escaped(source)}</code>`);
}

/** Formulas between `$` and `$$` as on GitHub, and between the brackets that TeX and many models use, of
 *  at most the length that is drawn. `$5 and $6` are prices. */
const INLINE = /^(?:\$\$(?!\$)([^\n$]+?)\$\$|\$`([^\n]{1,5000}?)`\$|\$(?![\s$])((?:\\[^\n]|[^\\\n$])*?)(?<![\s\\])\$(?![\d\w$])|\\\(([^\n]{1,5000}?)\\\))/;
const BLOCK_FORMULA = /^ {0,3}(?:\$\$([^$]+?)\$\$|\\\[([\s\S]{1,5000}?)\\\])[ \t]*(?:\n+|$)/;
const formulas: TokenizerAndRendererExtension[] = [
  {
    name: "formula",
    level: "inline",
    start: (text) => text.match(/\$|\\\(/)?.index,
    tokenizer(text) {
      const found = INLINE.exec(text);
      const tex = found?.slice(1).find((part) => part !== undefined);
      return found && tex?.trim() ? { type: "formula", raw: found[0], text: tex } : undefined;
    },
    renderer: ({ text, raw }) => drawn(text as string, raw, false),
  },
  {
    name: "formulaBlock",
    level: "block",
    start: (text) => text.match(/(?<=\n) {0,3}(?:\$\$|\\\[)/)?.index,
    tokenizer(text) {
      const found = BLOCK_FORMULA.exec(text);
      const tex = found?.[1] ?? found?.[2];
      return found && tex?.trim() ? { type: "formulaBlock", raw: found[0], text: tex } : undefined;
    },
    renderer: ({ text, raw }) => `${drawn(text as string, raw, true)}\n`,
  },
];

/** Finds the blocks of a text. It keeps no footnotes, which would put a token of their own before all others. */
const splitter = new Marked({ gfm: true, async: false });
splitter.use({ extensions: formulas });

marked.use(markedAlert(), markedFootnote(), {
  extensions: [
    ...formulas,
    { name: "footnoteRef", renderer: ({ label }) => noteButton(label as string) },
    {
      name: "footnotes",
      renderer({ items }) {
        const notes = items as { label: string; content: Token[] }[];
        const each = notes.map(({ label, content }) => `<li data-note-text="${numbers.get(label)}">${this.parser.parse(content)}</li>\n`);
        return notes.length === 0 ? "" : `<section class="footnotes" aria-label="Footnotes"><ol>\n${each.join("")}</ol></section>\n`;
      },
    },
  ],
  renderer: {
    html: ({ text }) => escaped(text),
    link({ href, tokens }) {
      linked++;
      const text = this.parser.parseInline(tokens);
      linked--;
      return `<a href="${address(href)}">${text}</a>`;
    },
    /** A page of another origin learns of whoever loads its picture, so the picture is a link. A link holds no other. */
    image({ href, tokens }) {
      const words = escaped(this.parser.parseInline(tokens, this.parser.textRenderer) || href);
      return linked > 0 ? words : `<a href="${address(href)}">${words}</a>`;
    },
    code: ({ text, lang }) => {
      const language = lang?.match(/^\S+/)?.[0] ?? "";
      return language === "math" ? `${drawn(text, text, true)}\n` : listing(text, language);
    },
  },
});

/** The numbers of the footnotes by their labels, in the order of their first mention. */
const numbers = new Map<string, number>();

/** The page goes to the note by `data-note`, since an anchor would change the page's own address. */
function noteButton(label: string): string {
  const number = numbers.get(label) ?? numbers.size + 1;
  numbers.set(label, number);
  return `<sup><button type="button" class="note" data-note="${number}" aria-label="Footnote ${number}">${number}</button></sup>`;
}

/** The sources of a text as the items of a list. Only addresses of the web become links. */
export function sources(of: readonly Source[]): string {
  const items = of.map(({ url, title }) => {
    const name = `<bdi>${escaped(visible(title || url || "a document"))}</bdi>`;
    return `<li>${/^https?:\/\//.test(url ?? "") ? `<a href="${address(url as string)}">${name}</a>` : name}</li>`;
  });
  return DOMPurify.sanitize(items.join(""), { ...SAFE, ALLOWED_TAGS: ["li", "a", "bdi"] });
}

export function markdown(text: string): string {
  numbers.clear();
  return visible(DOMPurify.sanitize(marked.parse(visible(text)) as string, SAFE)); // again: an entity may be such a mark
}

/** Carries out a press on one of a text's own buttons: copies the code of its listing, draws its diagram, or goes to its footnote. */
export function pressed(event: MouseEvent): void {
  const button = event.target instanceof Element ? event.target.closest<HTMLButtonElement>("button[data-copy], button[data-draw], button[data-note]") : null;
  if (button === null) return;
  const { note, draw } = button.dataset;
  if (draw !== undefined) return void drawDiagram(button);
  if (note !== undefined) {
    const found = button.closest(".prose")?.querySelector<HTMLElement>(`[data-note-text="${note}"]`);
    if (found) found.tabIndex = -1;
    found?.scrollIntoView({ block: "center" });
    found?.focus();
    return;
  }
  const code = button.closest(".listing")?.querySelector("code")?.textContent ?? "";
  void navigator.clipboard.writeText(code).then(() => {
    named(button, "Copied");
    setTimeout(() => named(button, "Copy"), 2_000);
  });
}

async function drawDiagram(button: HTMLButtonElement): Promise<void> {
  try {
    const { toggleDiagram } = await import("./diagram.ts");
    await toggleDiagram(button);
  } catch {
    notDrawn(button, "the page could not load what draws it. Try again, or reload the page");
  }
}

/** Say above the code why its diagram is not drawn. `button`: the one of the listing. */
export function notDrawn(button: HTMLButtonElement, why: string): void {
  const listing = button.closest(".listing");
  listing?.querySelector(".diagram-problem")?.remove();
  const problem = document.createElement("p");
  problem.className = "diagram-problem";
  problem.setAttribute("role", "alert");
  problem.textContent = `Not drawn: ${why}`;
  listing?.querySelector("pre")?.before(problem);
}

function named(button: HTMLButtonElement, word: string): void {
  button.textContent = word;
  button.setAttribute("aria-label", `${word} the code`);
}

/** A block has about so many characters: more of them are looked at for each frame, longer ones are parsed again for each. */
const BLOCK = 600;
/** An open part that is longer is shown as text until it ends, and an open listing without colours: it is drawn in each frame. */
const LONG = 4_000;
/** The first line of a listing. */
const FENCE = /^ {0,3}(?:`{3,}|~{3,}) *([^\s`]*)[^\n`]*\n/;
/** What a link may refer to from anywhere in the text. */
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m;

function openPart(text: string): string {
  const fence = FENCE.exec(text);
  return fence ? listing(text.slice(fence[0].length), fence[1] as string, false) : `<pre>${escaped(text)}</pre>`;
}

/** The Markdown of a text that grows, as blocks of HTML. What later text cannot change is parsed once. */
export class Growing {
  #blocks: string[] = [];
  #seen = 0;
  #rest = "";
  #whole = false;
  /** The libraries that were here when the blocks were parsed. */
  #extras = drawers.peek();
  /** Of so many characters nothing more could be parsed for good. */
  #tried = 0;

  /** `text` begins as it did before. `whole`: nothing more comes. */
  blocks(text: string, whole: boolean): string[] {
    if (this.#extras !== drawers.value) this.#again();
    if (this.#whole) return this.#blocks;
    this.#whole = whole;
    if (whole && (this.#seen === 0 || DEFINITION.test(text))) return (this.#blocks = [markdown(text)]);
    this.#rest += visible(text.slice(this.#seen)).replace(/\r\n?/g, "\n");
    this.#seen = text.length;
    if (whole) return (this.#blocks = [...this.#blocks, markdown(this.#rest)]);
    if (this.#rest.length > Math.max(BLOCK, this.#tried * 1.25)) this.#settle();
    if (this.#rest.length > LONG) return [...this.#blocks, openPart(this.#rest)];
    return [...this.#blocks, markdown(this.#rest)];
  }

  #again(): void {
    this.#extras = drawers.value;
    this.#blocks = [];
    this.#seen = this.#tried = 0;
    this.#rest = "";
    this.#whole = false;
  }

  /** The last two blocks may still change: a paragraph becomes a table, a list goes on behind an empty line. What is before a listing
   *  does not. */
  #settle(): void {
    const tokens = splitter.lexer(this.#rest);
    const places = tokens.flatMap((token, n) => (token.type === "space" ? [] : [n]));
    this.#tried = this.#rest.length;
    const open = FENCE.test(tokens.at(-1)?.raw ?? "") ? -1 : -2;
    const done = tokens.slice(0, places.at(open) ?? 0).map((token) => token.raw).join("");
    if (done === "" || !this.#rest.startsWith(done)) return;
    this.#blocks.push(markdown(done));
    this.#rest = this.#rest.slice(done.length);
    this.#tried = this.#rest.length;
  }
}
