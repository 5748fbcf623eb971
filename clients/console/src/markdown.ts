// Markdown of models, as HTML that can do nothing: no images, no forms, no styles, no scripts; links open elsewhere.
import DOMPurify from "dompurify";
import { Marked } from "marked";
import { visible } from "./format.ts";

const marked = new Marked({ gfm: true, breaks: true, async: false });
/** Attributes whose values are no addresses. */
const PLAIN = ["start", "align", "type", "checked", "disabled"];
const SAFE = {
  ALLOWED_TAGS: [
    ..."p br hr b i strong em del code pre blockquote ul ol li a h1 h2 h3 h4 h5 h6".split(" "),
    ..."table thead tbody tr th td input".split(" "),
  ],
  ALLOWED_ATTR: ["href", ...PLAIN],
  ADD_URI_SAFE_ATTR: PLAIN,
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
const escaped = (html: string): string => html.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
marked.use({
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => escaped(`![${text}](${href})`),
  },
});

export function markdown(text: string): string {
  return visible(DOMPurify.sanitize(marked.parse(visible(text)) as string, SAFE)); // again: an entity may be such a mark
}

/** A block has about so many characters: more of them are looked at for each frame, longer ones are parsed again for each. */
const BLOCK = 2_000;
/** An open part that is longer, such as a long listing, is shown as text until it ends. */
const LONG = 20_000;
/** What a link may refer to from anywhere in the text. */
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m;

/** The Markdown of a text that grows, as blocks of HTML. What later text cannot change is parsed once. */
export class Growing {
  #blocks: string[] = [];
  #seen = 0;
  #rest = "";
  #whole = false;
  /** Of so many characters nothing more could be parsed for good. */
  #tried = 0;

  /** `text` begins as it did before. `whole`: nothing more comes. */
  blocks(text: string, whole: boolean): string[] {
    if (this.#whole) return this.#blocks;
    this.#whole = whole;
    if (whole && (this.#seen === 0 || DEFINITION.test(text))) return (this.#blocks = [markdown(text)]);
    this.#rest += visible(text.slice(this.#seen)).replace(/\r\n?/g, "\n");
    this.#seen = text.length;
    if (whole) return (this.#blocks = [...this.#blocks, markdown(this.#rest)]);
    if (this.#rest.length > Math.max(BLOCK, this.#tried * 1.25)) this.#settle();
    if (this.#rest.length > LONG) return [...this.#blocks, `<pre>${escaped(this.#rest)}</pre>`];
    return [...this.#blocks, markdown(this.#rest)];
  }

  /** The last two blocks may still change: a paragraph becomes a table, a list goes on behind an empty line. */
  #settle(): void {
    const tokens = marked.lexer(this.#rest);
    const places = tokens.flatMap((token, n) => (token.type === "space" ? [] : [n]));
    this.#tried = this.#rest.length;
    const done = tokens.slice(0, places.at(-2) ?? 0).map((token) => token.raw).join("");
    if (done === "" || !this.#rest.startsWith(done)) return;
    this.#blocks.push(markdown(done));
    this.#rest = this.#rest.slice(done.length);
    this.#tried = this.#rest.length;
  }
}
